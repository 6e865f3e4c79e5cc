// The errors of the package: what went wrong, where, what was expected, what came, and what to do about it.

/** ExecuTorch's numbers of the conditions that JavaScript itself finds. */
const CODES = { Internal: 1, InvalidState: 2, NotSupported: 16, InvalidArgument: 18, NotFound: 32, AccessFailed: 34 };

export class RushlightError extends Error {
  constructor({ code, codeName, message, site, expected, got, hint, missingOperators }, options) {
    super(message, options);
    this.name = 'RushlightError';
    this.code = code;
    this.codeName = codeName;
    this.site = site ?? null;
    this.expected = expected ?? null;
    this.got = got ?? null;
    this.hint = hint ?? null;
    this.missingOperators = missingOperators ?? [];
  }
}

/** An error that JavaScript found. Its text has the form of the library's. */
export function failure(codeName, headline, { cause, ...fields } = {}) {
  const lines = ['site', 'expected', 'got', 'hint'].filter(name => fields[name] != null).map(name => {
    const label = { site: 'at', hint: 'help' }[name] ?? name;
    return `\n  ${label.padEnd(9)} ${fields[name]}`;
  });
  const code = CODES[codeName];
  const message = `[${codeName} 0x${code.toString(16).padStart(2, '0')}] ${headline}${lines.join('')}`;
  return new RushlightError({ code, codeName, message, ...fields }, cause && { cause });
}

/** The fields of an error, as they cross from a worker. */
export function fieldsOf(error) {
  if (error instanceof RushlightError) {
    const { message, code, codeName, site, expected, got, hint, missingOperators } = error;
    return { message, code, codeName, site, expected, got, hint, missingOperators };
  }
  return fieldsOf(failure('Internal', String(error)));
}
