//! NVIDIA's kvbm-logical, the block manager of Dynamo, as its `RequestSequence` says to use it.
use crate::{Peer, BLOCK};
use kvbm_logical::manager::{FrequencyTrackingCapacity, LineageEviction};
use kvbm_logical::{BlockManager, BlockRegistry, RequestSequence};

pub struct Manager(BlockManager<()>);

impl Manager {
    pub fn new(blocks: usize, backend: &str) -> Self {
        let tracker = FrequencyTrackingCapacity::Medium.create_tracker();
        let registry = BlockRegistry::builder().frequency_tracker(tracker).build();
        let builder = BlockManager::builder().block_count(blocks).block_size(BLOCK);
        let builder = builder.registry(registry);
        let builder = match backend {
            "lru" => builder.with_lru_backend(),
            "multi-lru" => builder.with_multi_lru_backend(),
            "lineage" => builder.with_lineage_backend(),
            "lineage-fifo" => builder.with_lineage_backend_eviction(LineageEviction::Fifo),
            _ => panic!("no peer {backend}"),
        };
        Self(builder.build().unwrap())
    }

    fn take(&self, request: &mut RequestSequence<()>, blocks: usize) {
        assert!(request.allocate_blocks(blocks, &self.0), "no {blocks} free blocks");
    }
}

impl Peer for Manager {
    type Request = RequestSequence<()>;

    fn begin(&self, prompt: &[i32]) -> (Self::Request, usize) {
        let tokens = prompt.iter().map(|&token| token as u32).collect();
        let mut request = RequestSequence::new(tokens, usize::MAX, BLOCK as u32);
        let matched = request.match_and_add_prefix(&self.0).unwrap();
        (request, matched * BLOCK)
    }

    fn extend(&self, requests: &mut [Self::Request], tokens: &[&[i32]]) {
        for (request, ids) in requests.iter_mut().zip(tokens) {
            if request.generated_tokens() == 0 && request.unassigned_blocks() == 0 {
                self.compute(request);
            } else {
                ids.iter().for_each(|&token| self.generate(request, token));
            }
        }
    }

    fn append(&self, requests: &mut [Self::Request], tokens: &[i32]) {
        requests.iter_mut().zip(tokens).for_each(|(request, &token)| self.generate(request, token));
    }

    fn end(&self, mut request: Self::Request) {
        request.release();
    }
}

impl Manager {
    /// The rest of the prompt, and a block for what is generated.
    fn compute(&self, request: &mut RequestSequence<()>) {
        self.take(request, request.num_blocks() - request.assigned_blocks() + 1);
        request.complete_and_register_pending(&self.0);
    }

    fn generate(&self, request: &mut RequestSequence<()>, token: i32) {
        if request.append_token(token as u32).is_some() {
            request.complete_and_register_pending(&self.0);
            self.take(request, 1);
        }
    }
}
