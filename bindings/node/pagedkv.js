'use strict';
// Every type, constant and function of the C interface, made from api.json when the program starts.
//
// Structs are objects; lists are arrays or typed arrays; a handle is what a call has written into
// an array of one element. A status other than PKV_OK is thrown.
const fs = require('node:fs');
const path = require('node:path');
const koffi = require('koffi');

const DESCRIPTIONS = [
  process.env.PAGEDKV_API,
  path.join(__dirname, '../../build/bindings/api.json'),
  '/usr/local/share/pagedkv/api.json',
  '/usr/share/pagedkv/api.json',
];

const api = JSON.parse(fs.readFileSync(DESCRIPTIONS.find((name) => name && fs.existsSync(name))));
const library = koffi.load(process.env.PAGEDKV_LIBRARY || 'libpagedkv.so.1');

const types = {'unsigned char': 'uint8_t'};
for (const {name} of api.enums) types[name] = 'int';
for (const {name} of api.handles) types[name] = koffi.pointer(name, koffi.opaque());

const isText = (type) => type.pointer?.name === 'char' && type.const;

// Pointers in structs are addresses: of a typed array, or of a struct that place() put into memory.
function field(type) {
  if (type.array) return koffi.array(field(type.array), type.length);
  if (isText(type)) return 'str';
  return type.name ? (types[type.name] ?? type.name) : 'void *';
}

function parameter(type) {
  if (!type.pointer || isText(type)) return field(type);
  if (!type.pointer.name || type.pointer.name === 'void') return 'void *';
  const pointer = koffi.pointer(field(type.pointer));
  return type.const ? pointer : koffi.inout(pointer);
}

for (const {name, type} of api.aliases) types[name] = field(type);
for (const {name, fields, size} of api.structs) {
  types[name] = koffi.struct(
      name, Object.fromEntries(fields.map((each) => [each.name, field(each.type)])));
  if (koffi.sizeof(types[name]) !== size) throw new Error(`${name} has another size here`);
}

for (const {name, value} of [...api.constants, ...api.enums.flatMap((each) => each.constants)])
  exports[name] = value;

class PagedkvError extends Error {
  constructor(status) {
    super(`${exports.pkv_status_name(status)}: ${exports.pkv_last_error()}`);
    this.status = status;
    this.details = koffi.decode(exports.pkv_last_error_details(), types.pkv_error_details);
  }
}
exports.PagedkvError = PagedkvError;

for (const {name, returns, parameters} of api.functions) {
  const call = library.func(name, field(returns), parameters.map((each) => parameter(each.type)));
  exports[name] = returns.name !== 'pkv_status' ? call : (...values) => {
    const status = call(...values);
    if (status !== exports.PKV_OK) throw new PagedkvError(status);
  };
}

// A struct of zeros, which are its defaults, with its struct_size.
exports.make = (name) => {
  const type = types[name];
  const struct = koffi.decode(new Uint8Array(koffi.sizeof(type)), type);
  if (Object.hasOwn(struct, 'struct_size')) struct.struct_size = koffi.sizeof(type);
  return struct;
};

// The address of a struct, for a field of another one. The memory is freed by free().
exports.place = (name, struct) => {
  const memory = koffi.alloc(types[name], 1);
  koffi.encode(memory, types[name], struct);
  return memory;
};
exports.free = koffi.free;
