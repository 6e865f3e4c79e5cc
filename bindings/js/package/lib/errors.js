// The errors of the package: message, place, expected and actual values, and a hint.

/** ExecuTorch's codes of the errors that JavaScript code finds. */
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

/** An error that JavaScript code found, with a text in the form of the library's. */
export function failure(codeName, headline, { cause, ...fields } = {}) {
  const lines = ['site', 'expected', 'got', 'hint'].filter(name => fields[name] != null).map(name => {
    const label = { site: 'at', hint: 'help' }[name] ?? name;
    return `\n  ${label.padEnd(9)} ${fields[name]}`;
  });
  const code = CODES[codeName];
  const message = `[${codeName} 0x${code.toString(16).padStart(2, '0')}] ${headline}${lines.join('')}`;
  return new RushlightError({ code, codeName, message, ...fields }, cause && { cause });
}

/** The fields of an error, for messages between threads. */
export function fieldsOf(error) {
  if (error instanceof RushlightError) {
    const { message, code, codeName, site, expected, got, hint, missingOperators } = error;
    return { message, code, codeName, site, expected, got, hint, missingOperators };
  }
  return fieldsOf(failure('Internal', String(error)));
}
