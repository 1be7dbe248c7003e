// The whole life of a cache from Java, by JNA and what generate.py makes of api.json.
// PAGEDKV_LIBRARY names the library; without it, one that is installed is found.

import com.sun.jna.Memory;
import com.sun.jna.Native;
import com.sun.jna.Pointer;
import java.util.Locale;

public class Minimal {
  static final int LAYERS = 2;
  static final int QUERY_HEADS = 4;
  static final int KV_HEADS = 2;
  static final int DIM = 32;
  static final int TOKENS = 20;

  static final Pkv pkv =
      Native.load(System.getenv().getOrDefault("PAGEDKV_LIBRARY", "libpagedkv.so.1"), Pkv.class);

  static void check(int status) {
    if (status != Pkv.PKV_OK)
      throw new IllegalStateException(
          pkv.pkv_status_name(status) + ": " + pkv.pkv_last_error());
  }

  /** Memory for a row of each token, all zeros. */
  static Memory rows(int heads) {
    Memory memory = new Memory((long) TOKENS * heads * DIM * Float.BYTES);
    memory.clear();
    return memory;
  }

  static Pkv.pkv_tensor tensor(Memory data) {
    Pkv.pkv_tensor tensor = new Pkv.pkv_tensor();
    tensor.data = data;
    tensor.dtype = Pkv.PKV_F32;
    return tensor;
  }

  public static void main(String[] arguments) {
    Pkv.pkv_layer_group model = new Pkv.pkv_layer_group();
    model.layers = LAYERS;
    model.query_heads = QUERY_HEADS;
    model.kv_heads = KV_HEADS;
    model.key_dim = DIM;
    model.blocks = 64;
    model.write(); // to its memory, since it is passed by its address
    Pkv.pkv_cache_config config = new Pkv.pkv_cache_config();
    config.groups = model.getPointer();

    Pointer[] cache = new Pointer[1];
    Pointer[] session = new Pointer[1];
    Pointer[] batch = new Pointer[1];
    check(pkv.pkv_cache_create(config, cache));
    check(pkv.pkv_session_open(cache[0], null, session));

    // All keys are alike, so attention gives the mean of the values so far.
    Memory k = rows(KV_HEADS);
    Memory v = rows(KV_HEADS);
    Memory q = rows(QUERY_HEADS);
    Memory out = rows(QUERY_HEADS);
    for (int i = 0; i < TOKENS * KV_HEADS * DIM; i++)
      v.setFloat((long) i * Float.BYTES, i / (KV_HEADS * DIM));
    int[] tokens = new int[TOKENS];
    for (int i = 0; i < TOKENS; i++) tokens[i] = 100 + i;

    check(pkv.pkv_batch_begin(cache[0], 1, session, new int[] {TOKENS}, batch));
    for (int layer = 0; layer < LAYERS; layer++) {
      check(pkv.pkv_batch_write(batch[0], layer, tensor(k), tensor(v)));
      check(pkv.pkv_batch_attend(batch[0], layer, null, tensor(q), tensor(out), null));
    }
    check(pkv.pkv_batch_commit(batch[0], TOKENS, tokens));

    float mean = 0;
    for (int token = 0; token < TOKENS; token++) {
      mean = out.getFloat((long) token * QUERY_HEADS * DIM * Float.BYTES);
      if (Math.abs(mean - token / 2.0) > 1e-5)
        throw new IllegalStateException("token " + token + ": " + mean);
    }
    long[] length = new long[1];
    check(pkv.pkv_session_get_length(session[0], length));
    System.out.printf(
        Locale.ROOT,
        "token %d attends to %d tokens: %.2f (expected 9.50)%n",
        length[0] - 1,
        length[0],
        mean);

    // A failed call says why, and changes nothing.
    try {
      check(pkv.pkv_session_trim(session[0], TOKENS + 1));
    } catch (IllegalStateException error) {
      System.out.println("refused, as it should be: " + error.getMessage());
    }

    Pkv.pkv_cache_stats stats = new Pkv.pkv_cache_stats();
    check(pkv.pkv_cache_get_stats(cache[0], stats));
    Pkv.pkv_pool_stats pools = new Pkv.pkv_pool_stats();
    check(pkv.pkv_cache_get_pool_stats(cache[0], Pkv.PKV_ALL_GROUPS, pools));
    System.out.printf("%d blocks hold %d tokens%n", pools.held_blocks, stats.tokens);
    check(pkv.pkv_cache_destroy(cache[0])); // closes the session as well
  }
}
