"""OpenVINO's PagedAttention on the CPU: a model of that one operation, fed with block tables as
openvino.genai does.
"""

import numpy as np
from peer import BaseStep, Unsupported, fastest

NAME = "OpenVINO"
PACKAGE = "openvino"
BLOCK = 32  # The only block size of the CPU plugin.

_threads = 0


def start(threads, library):
    global _threads
    import openvino  # noqa: F401

    _threads = threads


def _model(shape):
    import openvino as ov
    from openvino import opset13 as op

    def parameter(name, rank, dtype, last=-1):
        dims = [-1] * (rank - 1) + [last] * (rank > 0)
        node = op.parameter(ov.PartialShape(dims), dtype, name=name)
        node.output(0).set_names({name})
        parameters.append(node)
        return node

    def constant(value, dtype=np.int32):
        return op.constant(np.array(value, dtype))

    def none(dtype=np.int32):
        return constant([], dtype)

    parameters = []
    heads, kv_heads, dim = shape.query_heads, shape.kv_heads, shape.dim
    f32, i32 = np.float32, np.int32
    inputs = [
        parameter("query", 2, f32, heads * dim),
        parameter("key", 2, f32, kv_heads * dim),
        parameter("value", 2, f32, kv_heads * dim),
        parameter("key_cache", 4, ov.Type.dynamic),
        parameter("value_cache", 4, ov.Type.dynamic),
        parameter("past_lens", 1, i32),
        parameter("subsequence_begins", 1, i32),
        parameter("block_indices", 1, i32),
        parameter("block_indices_begins", 1, i32),
        constant(dim**-0.5, f32),  # scale
        constant(0),  # sliding window: none
        none(f32),  # ALiBi slopes
        parameter("max_context_len", 0, i32),
        none(),  # score aggregation window
        *(none(), none(), none(f32)),  # rotated blocks, rotation deltas and table
        *(none(f32), constant(0), constant(0)),  # sparse attention: threshold, block size, stride
        none(f32),  # attention sinks
        *(constant(0), none(), none(), none()),  # eviction: start, sizes, block sets, their begins
        none(),  # token types
        *(none(np.uint8), none()),  # bias between queries and its begins
    ]
    attention = ov.op._PagedAttentionExtension([node.output(0) for node in inputs])
    info = attention.get_rt_info()
    info["num_k_heads"] = info["num_v_heads"] = kv_heads
    info["k_head_size"] = info["v_head_size"] = dim
    return ov.Model([attention.output(0)], parameters, "paged_attention")


def _options(dtype):
    """Compile options to choose from: quantised keys have a scale per channel (the default) or per
    token.
    """
    options = {
        "KV_CACHE_PRECISION": {"int8": "u8", "int4": "u4"}.get(dtype, dtype),
        "INFERENCE_PRECISION_HINT": "bf16" if dtype == "bf16" else "f32",
        "INFERENCE_NUM_THREADS": _threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    modes = ("BY_CHANNEL", "BY_TOKEN") if dtype.startswith("int") else ()
    return [options | {"KEY_CACHE_QUANT_MODE": mode} for mode in modes] or [options]


class Step(BaseStep):
    def __init__(self, shape, dtype, rows):
        import openvino as ov

        self.core = ov.Core()
        capabilities = self.core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        if dtype == "bf16" and "BF16" not in capabilities:
            raise Unsupported("the CPU plugin has bf16 only on processors with bf16 instructions")
        self.shape = shape
        requests = [self._request(rows, options) for options in _options(dtype)]
        self.request = fastest(requests, lambda request: request.infer)

    def _request(self, rows, options):
        import openvino as ov

        shape = self.shape
        compiled = self.core.compile_model(_model(shape), "CPU", options)
        request = compiled.create_infer_request()
        counts = [-(-length // BLOCK) for length in shape.lengths]
        for port in compiled.inputs:
            if port.any_name.endswith("_cache"):
                dims = [d.get_length() for d in list(port.partial_shape)[1:]]
                cache = ov.Tensor(port.element_type, ov.Shape([sum(counts)] + dims))
                request.set_tensor(port.any_name, cache)
        blocks = np.arange(sum(counts), dtype=np.int32)
        np.random.default_rng(2).shuffle(blocks)
        begins = np.cumsum([0] + counts)
        self._fill(request, rows, blocks, begins)
        new = [rows.new(shape, part).reshape(shape.rows, -1) for part in (rows.k, rows.v)]
        past = [length - shape.new for length in shape.lengths]
        subsequences = np.arange(shape.sessions + 1) * shape.new
        q, longest = rows.q.reshape(shape.rows, -1), max(shape.lengths)
        self._feed(request, q, *new, past, subsequences, blocks, begins, longest)
        return request

    def _fill(self, request, rows, blocks, begins):
        # K and V do not depend on the position, so each block is filled as a sequence of its own.
        # This needs no long attention, and leaves rounding, quantisation and layout to the engine.
        shape = self.shape
        for i, length in enumerate(shape.lengths):
            k, v = (part[i].reshape(length, -1) for part in (rows.k, rows.v))
            chunks = np.append(np.arange(0, length, BLOCK), length)
            count = len(chunks) - 1
            q = np.zeros((length, shape.query_heads * shape.dim), np.float32)
            own = blocks[begins[i] : begins[i + 1]]
            self._feed(request, q, k, v, [0] * count, chunks, own, np.arange(count + 1), BLOCK)
            request.infer()

    def _feed(self, request, q, k, v, past, subsequences, blocks, begins, longest):
        import openvino as ov

        integers = {
            "past_lens": past,
            "subsequence_begins": subsequences,
            "block_indices": blocks,
            "block_indices_begins": begins,
            "max_context_len": longest,
        }
        arrays = {name: np.array(array, np.int32) for name, array in integers.items()}
        for name, array in ({"query": q, "key": k, "value": v} | arrays).items():
            request.set_tensor(name, ov.Tensor(array))

    def run(self):
        self.request.infer()

    def output(self):
        dims = self.shape.rows, self.shape.query_heads, self.shape.dim
        return self.request.get_output_tensor(0).data.reshape(dims)
