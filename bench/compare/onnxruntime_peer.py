"""ONNX Runtime's GroupQueryAttention on the CPU. Past and present share a buffer, so nothing is
copied.
"""

import numpy as np
from peer import BaseStep, Unsupported

NAME = "ONNX Runtime"
PACKAGE = "onnxruntime"

_threads = 0


def start(threads, library):
    global _threads
    import onnx  # noqa: F401
    import onnxruntime  # noqa: F401

    _threads = threads


def _model(shape, row_type, cache_type, bits):
    from onnx import TensorProto, helper

    def value(name, dtype, dims):
        return helper.make_tensor_value_info(name, dtype, dims)

    heads, kv_heads, dim = shape.query_heads, shape.kv_heads, shape.dim
    cache = [shape.sessions, kv_heads, max(shape.lengths), dim // 2 if bits == 4 else dim]
    inputs = [value("query", row_type, [shape.sessions, shape.new, heads * dim])]
    inputs += [
        value(n, row_type, [shape.sessions, shape.new, kv_heads * dim]) for n in ("key", "value")
    ]
    inputs += [value(n, cache_type, cache) for n in ("past_key", "past_value")]
    inputs += [
        value("seqlens_k", TensorProto.INT32, [shape.sessions]),
        value("total_sequence_length", TensorProto.INT32, [1]),
    ]
    names, options = [i.name for i in inputs], {"num_heads": heads, "kv_num_heads": kv_heads}
    if bits:
        inputs += [value(n, TensorProto.FLOAT, [kv_heads * dim]) for n in ("k_scale", "v_scale")]
        names += [""] * 5 + ["k_scale", "v_scale"]  # no rotary tables, positions, bias and sinks
        options |= {"kv_cache_bit_width": bits}
        options |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL"}
    outputs = [value("output", row_type, [shape.sessions, shape.new, heads * dim])]
    outputs += [value(n, cache_type, cache) for n in ("present_key", "present_value")]
    node = helper.make_node(
        "GroupQueryAttention", names, [o.name for o in outputs], domain="com.microsoft", **options
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "gqa", inputs, outputs)
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


class Step(BaseStep):
    def __init__(self, shape, dtype, rows):
        import onnxruntime as ort
        from onnx import TensorProto

        if dtype == "bf16":
            raise Unsupported("the CPU provider has no GroupQueryAttention for bf16")
        row_type, numpy_type = TensorProto.FLOAT, np.float32
        if dtype == "f16":
            row_type, numpy_type = TensorProto.FLOAT16, np.float16
        bits = {"int8": 8, "int4": 4}.get(dtype)
        cache_type = {8: TensorProto.INT8, 4: TensorProto.UINT8}.get(bits, row_type)
        options = ort.SessionOptions()
        options.intra_op_num_threads = _threads
        options.log_severity_level = 4
        model = _model(shape, row_type, cache_type, bits)
        self.session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()

        def bind(name, array):
            ortvalue = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))
            self.binding.bind_ortvalue_input(name, ortvalue)
            return ortvalue

        per_session = (shape.sessions, shape.new, -1)
        bind("query", rows.q.astype(numpy_type).reshape(per_session))
        for name, part in (("key", rows.k), ("value", rows.v)):
            bind(name, rows.new(shape, part).astype(numpy_type).reshape(per_session))
            # A static scale per channel, as calibration would find it.
            largest = np.max([np.abs(r).max(axis=0) for r in part], axis=0)
            scale = largest / np.float32(7 if bits == 4 else 127)
            dims = shape.sessions, shape.kv_heads, max(shape.lengths), shape.dim
            cache = np.zeros(dims, np.int8 if bits else numpy_type)
            for i, length in enumerate(shape.lengths):
                past = part[i][: length - shape.new]
                past = np.rint(past / scale) if bits else past
                cache[i, :, : length - shape.new] = past.transpose(1, 0, 2)
            if bits == 4:
                nibbles = (cache + 8).view(np.uint8)
                cache = nibbles[..., ::2] | nibbles[..., 1::2] << 4
            buffer = bind(f"past_{name}", cache)
            self.binding.bind_ortvalue_output(f"present_{name}", buffer)
            if bits:
                bind(f"{name[0]}_scale", scale.reshape(-1))
        bind("seqlens_k", np.array(shape.lengths, np.int32) - 1)
        bind("total_sequence_length", np.array([max(shape.lengths)], np.int32))
        out = np.zeros((shape.sessions, shape.new, shape.query_heads * shape.dim), numpy_type)
        self.out = ort.OrtValue.ortvalue_from_numpy(out)
        self.binding.bind_ortvalue_output("output", self.out)
        self.shape = rows.q.shape

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def output(self):
        return self.out.numpy().astype(np.float32).reshape(self.shape)
