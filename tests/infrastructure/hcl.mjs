// Terraform's language: HashiCorp's parser (WebAssembly) and an evaluator of expressions.
//
// The evaluator knows only values that are known before `apply`: an attribute of a resource is
// `Unknown`, and so is what depends on it. A function that it does not have is an error.

import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { getExpressionAst, parse } from '@cdktn/hcl2json';

/** A value that is known only after `apply`. */
export const UNKNOWN = Symbol('unknown');

/** A fault in an expression, such as a call of regex() without a match. */
export class EvaluationError extends Error {}

/** Parses the `.tf` files of a directory; each block has the name of its file. */
export async function parseModule(directory) {
  const module = {
    directory,
    variables: {},
    locals: {},
    outputs: {},
    resources: {},
    data: {},
    modules: {},
    providers: {},
    terraform: [],
  };
  const add = (kind, name, block, file) => {
    if (kind[name]) throw new Error(`${file}: ${name} is defined twice`);
    kind[name] = { ...block, $file: file };
  };
  for (const name of readdirSync(directory)
    .filter(name => name.endsWith('.tf'))
    .sort()) {
    const file = join(directory, name);
    const text = readFileSync(file, 'utf8');
    const parsed = await parse(file, text);
    for (const [kind, content] of Object.entries(parsed)) {
      if (kind === 'locals') {
        for (const block of content) {
          for (const [key, value] of Object.entries(block))
            add(module.locals, key, { value }, file);
        }
      } else if (kind === 'terraform') {
        module.terraform.push(...content);
      } else if (kind === 'provider') {
        for (const [key, blocks] of Object.entries(content)) {
          add(module.providers, key, blocks[0], file);
        }
      } else if (kind === 'resource' || kind === 'data') {
        const table = kind === 'data' ? module.data : module.resources;
        for (const [type, named] of Object.entries(content)) {
          for (const [key, blocks] of Object.entries(named)) {
            add(table, `${type}.${key}`, { ...blocks[0], $type: type }, file);
          }
        }
      } else if (['variable', 'output', 'module'].includes(kind)) {
        for (const [key, blocks] of Object.entries(content)) {
          add(module[`${kind}s`], key, blocks[0], file);
        }
      } else {
        throw new Error(`${file}: a block of kind ${kind} is not expected`);
      }
    }
  }
  return module;
}

/** Splits a string of hcl2json at its interpolations: texts and { expression }. */
function parts(text) {
  const out = [];
  let literal = '';
  for (let i = 0; i < text.length;) {
    if (text.startsWith('$${', i)) {
      literal += '${';
      i += 3;
    } else if (text.startsWith('${', i)) {
      const end = closing(text, i + 2);
      if (literal) out.push(literal);
      literal = '';
      out.push({ expression: text.slice(i + 2, end) });
      i = end + 1;
    } else {
      literal += text[i];
      i += 1;
    }
  }
  if (literal) out.push(literal);
  return out;
}

/** Returns the index of the brace that closes an interpolation. */
function closing(text, from) {
  let depth = 0;
  for (let i = from; i < text.length; i += 1) {
    if (text[i] === '"') {
      for (i += 1; text[i] !== '"'; i += 1) {
        if (text[i] === '\\') i += 1;
        else if (text.startsWith('${', i)) i = closing(text, i + 2);
      }
    } else if (text[i] === '{') {
      depth += 1;
    } else if (text[i] === '}') {
      if (depth === 0) return i;
      depth -= 1;
    }
  }
  throw new Error(`no closing brace: ${text}`);
}

const asts = new Map();

async function ast(expression) {
  if (!asts.has(expression)) {
    const tree = await getExpressionAst('expression', expression);
    if (!tree) throw new Error(`not an expression: ${expression}`);
    const attach = node => {
      node.source = Buffer.from(expression);
      node.children.forEach(attach);
    };
    attach(tree);
    asts.set(expression, tree);
  }
  return asts.get(expression);
}

/** The items of an object: { name, key, value }; `name` is null if the key is an expression. */
export function objectItems(node) {
  const items = [];
  for (let i = 0; i < node.children.length; i += 2) {
    const [key, value] = node.children.slice(i, i + 2);
    const { start, end } = key.range;
    const name = key.children.length ? null : key.source.subarray(start.byte, end.byte).toString();
    if (name !== null && !/^[\w-]+$/.test(name)) throw new Error(`not a key of an object: ${name}`);
    items.push({ name, key, value });
  }
  return items;
}

/** Calls `visit` with each expression's syntax tree below a value of hcl2json. */
export async function expressions(value, visit) {
  if (typeof value === 'string') {
    for (const part of parts(value))
      if (part.expression !== undefined) visit(await ast(part.expression));
  } else if (Array.isArray(value)) {
    for (const item of value) await expressions(item, visit);
  } else if (value && typeof value === 'object') {
    for (const [key, item] of Object.entries(value)) {
      if (key.startsWith('$')) continue;
      await expressions(key, visit);
      await expressions(item, visit);
    }
  }
}

/** Returns whether a value of hcl2json contains an interpolation. */
export const isDynamic = value =>
  typeof value === 'string' && parts(value).some(p => typeof p !== 'string');

/** Evaluates a value of hcl2json. `scope` maps root names to values or to async functions. */
export async function evaluate(value, scope) {
  if (typeof value === 'string') {
    const found = parts(value);
    if (found.length === 1 && found[0].expression !== undefined) {
      return evaluateTree(await ast(found[0].expression), scope);
    }
    const texts = [];
    for (const part of found) {
      texts.push(
        typeof part === 'string' ? part : await evaluateTree(await ast(part.expression), scope),
      );
    }
    return concatenate(texts);
  }
  if (Array.isArray(value)) return Promise.all(value.map(item => evaluate(item, scope)));
  if (value && typeof value === 'object') {
    const out = {};
    for (const [key, item] of Object.entries(value)) out[key] = await evaluate(item, scope);
    return out;
  }
  return value;
}

function concatenate(texts) {
  if (texts.includes(UNKNOWN)) return UNKNOWN;
  for (const text of texts) {
    if (text === null || typeof text === 'object') {
      throw new EvaluationError(`a template cannot contain ${JSON.stringify(text)}`);
    }
  }
  return texts.map(String).join('');
}

function step(value, key) {
  if (value === UNKNOWN) return UNKNOWN;
  if (value === null || typeof value !== 'object' || !(key in value)) {
    throw new EvaluationError(`no attribute ${key}`);
  }
  return value[key];
}

async function evaluateTree(node, scope) {
  const { type, meta = {}, children } = node;
  const of = child => evaluateTree(child, scope);
  switch (type) {
    case 'literalValue':
      if (meta.type === 'number') return Number(meta.value);
      if (meta.type === 'bool') return meta.value === 'true';
      return meta.type === 'dynamic' ? null : meta.value;
    case 'template': {
      const texts = [];
      for (const child of children) texts.push(await of(child));
      return concatenate(texts);
    }
    case 'templateWrap':
    case '':
      return of(children[0]);
    case 'scopeTraversal': {
      const [root, ...path] = meta.traversal.map(part => part.segment.replace(/^"(.*)"$/, '$1'));
      if (!(root in scope)) return UNKNOWN; // a resource
      let value = scope[root];
      for (const key of path) {
        value = typeof value === 'function' ? await value(key) : step(value, key);
      }
      return value;
    }
    case 'relativeTraversal': {
      let value = await of(children[0]);
      for (const part of meta.traversal)
        value = step(value, part.segment.replace(/^"(.*)"$/, '$1'));
      return value;
    }
    case 'index':
      return step(await of(children[0]), await of(children[1]));
    case 'tuple': {
      const items = [];
      for (const child of children) items.push(await of(child));
      return items;
    }
    case 'object': {
      const out = {};
      for (const { name, key, value } of objectItems(node)) {
        out[name ?? (await of(key))] = await of(value);
      }
      return out;
    }
    case 'conditional': {
      const condition = await of(children[0]);
      return condition === UNKNOWN ? UNKNOWN : of(children[condition ? 1 : 2]);
    }
    case 'unaryOp': {
      const value = await of(children[0]);
      if (value === UNKNOWN) return UNKNOWN;
      return meta.operator === 'logicalNot' ? !value : -value;
    }
    case 'binaryOp':
      return binary(meta.operator, await of(children[0]), await of(children[1]));
    case 'for':
      return comprehension(node, scope);
    case 'function':
      return call(node, scope);
    default:
      throw new Error(`the evaluator has no expression of type ${type}: ${meta.value}`);
  }
}

function binary(operator, left, right) {
  if (left === UNKNOWN || right === UNKNOWN) return UNKNOWN;
  switch (operator) {
    case 'logicalAnd':
      return left && right;
    case 'logicalOr':
      return left || right;
    case 'equal':
      return JSON.stringify(left) === JSON.stringify(right);
    case 'notEqual':
      return JSON.stringify(left) !== JSON.stringify(right);
    case 'greaterThan':
      return left > right;
    case 'greaterThanOrEqual':
      return left >= right;
    case 'lessThan':
      return left < right;
    case 'lessThanOrEqual':
      return left <= right;
    case 'add':
      return left + right;
    case 'subtract':
      return left - right;
    case 'multiply':
      return left * right;
    case 'divide':
      return left / right;
    default:
      throw new Error(`the evaluator has no operator ${operator}`);
  }
}

async function comprehension({ meta, children }, scope) {
  const collection = await evaluateTree(children[0], scope);
  if (collection === UNKNOWN) return UNKNOWN;
  const [key, value, condition] = meta.keyExpression
    ? [children[1], children[2], children[3]]
    : [null, children[1], children[2]];
  const items = [];
  for (const [index, item] of Object.entries(collection)) {
    const number = Array.isArray(collection) ? Number(index) : index;
    const inner = { ...scope, [meta.valVar]: item };
    if (meta.keyVar) inner[meta.keyVar] = number;
    if (condition && !(await evaluateTree(condition, inner))) continue;
    const result = await evaluateTree(value, inner);
    items.push(key ? [await evaluateTree(key, inner), result] : result);
  }
  return key ? Object.fromEntries(items) : items;
}

/** Parses an IPv4 network: address as a number, and the length of its prefix. */
function network(text) {
  const found = /^(\d+)\.(\d+)\.(\d+)\.(\d+)\/(\d+)$/.exec(text);
  const numbers = found?.slice(1).map(Number);
  if (!numbers || numbers.slice(0, 4).some(n => n > 255) || numbers[4] > 32) {
    throw new EvaluationError(`${text} is not an IPv4 network`);
  }
  const [a, b, c, d, length] = numbers;
  return { base: ((a * 256 + b) * 256 + c) * 256 + d, length };
}

const dotted = n => [24, 16, 8, 0].map(shift => Math.floor(n / 2 ** shift) % 256).join('.');

const FUNCTIONS = {
  alltrue: list => list.every(Boolean),
  base64encode: text => Buffer.from(text).toString('base64'),
  cidrnetmask: text => dotted(2 ** 32 - 2 ** (32 - network(text).length)),
  cidrsubnet: (text, bits, index) => {
    const { base, length } = network(text);
    if (length + bits > 32 || index >= 2 ** bits) throw new EvaluationError(`${text} is too small`);
    const size = 2 ** (32 - length);
    return `${dotted(base - (base % size) + index * (size / 2 ** bits))}/${length + bits}`;
  },
  contains: (list, item) => list.includes(item),
  distinct: list => [...new Set(list)],
  floor: Math.floor,
  join: (separator, list) => list.join(separator),
  jsondecode: JSON.parse,
  jsonencode: value => JSON.stringify(value),
  keys: map => Object.keys(map).sort(),
  length: value => (typeof value === 'string' ? value.length : Object.keys(value).length),
  max: Math.max,
  merge: (...maps) => Object.assign({}, ...maps),
  min: Math.min,
  range: (from, to) => Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i),
  regex: (pattern, text) => {
    const found = new RegExp(pattern).exec(text);
    if (!found) throw new EvaluationError(`${text} does not match ${pattern}`);
    return found.length > 1 ? found.slice(1) : found[0];
  },
  slice: (list, from, to) => list.slice(from, to),
  startswith: (text, prefix) => text.startsWith(prefix),
  toset: list => [...new Set(list)],
};

async function call({ meta, children }, scope) {
  if (meta.name === 'can' || meta.name === 'try') {
    for (const child of children) {
      try {
        const value = await evaluateTree(child, scope);
        return meta.name === 'can' ? true : value;
      } catch (error) {
        if (!(error instanceof EvaluationError)) throw error;
      }
    }
    if (meta.name === 'can') return false;
    throw new EvaluationError('no argument of try() has a value');
  }
  const values = [];
  for (const child of children) values.push(await evaluateTree(child, scope));
  if (meta.name === 'file' || meta.name === 'templatefile') {
    if (!existsSync(values[0])) throw new EvaluationError(`no file ${values[0]}`);
    const text = readFileSync(values[0], 'utf8');
    return meta.name === 'file' ? text : render(values[0], text, values[1]);
  }
  const implementation = FUNCTIONS[meta.name];
  if (!implementation) throw new Error(`the evaluator has no function ${meta.name}`);
  if (values.includes(UNKNOWN)) return UNKNOWN;
  const absent = values.findIndex(value => value === null);
  if (absent >= 0 && meta.name !== 'jsonencode') {
    throw new EvaluationError(`argument ${absent + 1} of ${meta.name}() is null`);
  }
  return implementation(...values);
}

/** The placeholders of a template: only names, since Bicep replaces them as well. */
export function placeholders(text) {
  return [...text.matchAll(/\$\{([^}]*)\}/g)].map(found => found[1]);
}

/** Renders a template whose placeholders are those of `values`. */
export function render(path, text, values) {
  const names = new Set(placeholders(text));
  const missing = [...names].filter(name => !(name in values));
  const unused = Object.keys(values).filter(name => !names.has(name));
  if (missing.length || unused.length || text.includes('%{')) {
    throw new EvaluationError(
      `${path}: placeholders without a value: [${missing}], values without a placeholder: [${unused}]`,
    );
  }
  if (Object.values(values).includes(UNKNOWN)) return UNKNOWN;
  return text.replace(/\$\{([^}]*)\}/g, (_, name) => values[name]);
}
