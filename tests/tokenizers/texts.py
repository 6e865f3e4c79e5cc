"""Texts for all tokenizers: every script, every kind of character, and long ones without a place to split at."""

import random
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MEGABYTE = 1 << 20

SHORT = [
    "", " ", "  ", "\n", "\n\n", "\r\n", "\t", "hello", " hello", "hello ", "  hello  world  ", "Hello, world!", "a\tb\r\nc\u00a0d",
    "The quick brown fox  jumps over 13 lazy dogs.", "don't you'll WE'RE I'm he'd o'clock 'S 'T ’s", "HTTPServer iPhone McDonald aB Ab ABc",
    "3.14159 1000000 12,345.67 1e-9 0xFF ½ ² ⅷ ٣٤٥ 一二三", "naïve café Ångström ﬁ ﬂ Ⅷ ①", "e\u0301 é \u0065\u0301\u0302 \u1ea5 q\u0307\u0323",
    "line one\n  line two\n\n\nline five\n", "\n\n  x", "x  \n", " \n \n x", "tail   ", "   head", "\u3000a\u2003b\u2009c\u205fd\u1680e\u0085f",
    "fn main() { println!(\"{}\", 1 << 4); }", "def f(x):\n    return x  # comment\n\n\tif x:\n\t\tpass", "https://example.org/a?b=c&d=%20#e",
    "a_b __init__ snake_case-kebab.dot/slash\\back", "!!!??? ... --- === *** ((())) [[]] {{}} <<>> $$ ^^ ~~ ``", "…“”‘’«»–—•·¶§",
    # Words in many scripts.
    "Grüße aus Köln, ÄÖÜß ẞ", "Ça va? Où est l'œuvre", "¿Qué tal? ¡Señor!", "Žluťoučký kůň pěl ďábelské ódy", "Zażółć gęślą jaźń",
    "İstanbul ıI iİ DİYARBAKIR", "Þetta er íslenska", "Tiếng Việt có dấu", "Привет, мир! Ёж", "Καλημέρα κόσμε ΣΊΣΥΦΟΣ ς", "Հայերեն լեզու",
    "ქართული ენა", "שָׁלוֹם עולם", "مَرْحَبًا بِالعَالَم ١٢٣", "سلام دنیا می‌خواهم", "ܫܠܡܐ ܥܠܡܐ", "नमस्ते दुनिया क्षत्रिय", "বাংলা ভাষা", "ਪੰਜਾਬੀ", "ગુજરાતી",
    "ଓଡ଼ିଆ", "தமிழ் மொழி", "తెలుగు భాష", "ಕನ್ನಡ ಭಾಷೆ", "മലയാളം", "සිංහල", "สวัสดีชาวโลก", "ພາສາລາວ", "བོད་སྐད།", "မြန်မာဘာသာ", "አማርኛ ቋንቋ", "ភាសាខ្មែរ",
    "ᠮᠣᠩᠭᠣᠯ", "ᏣᎳᎩ", "ᐃᓄᒃᑎᑐᑦ", "你好，世界。我们在一起", "繁體中文「測試」", "こんにちは世界ー カタカナ ﾊﾝｶｸ", "안녕하세요 \u1112\u1161\u11ab", "𠮷野家 𪚥", "𝕳𝖊𝖑𝖑𝖔 𝟙𝟚𝟛", "𐌰𐌱𐌲 𒀀𒁀 𓀀𓁐 𐤀𐤁",
    # Emoji with modifiers, joiners, flags, keycaps and tags.
    "👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷🇯 1️⃣#️⃣ ❤️ ☺︎ 🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "😀😀😀😀 a😀b 😀", "👨🏿‍🦱👩🏼‍🚀",
    # Control and format characters, and what is no character.
    "\x00", "\x00\x01\x02\x1b\x7f\x80\x9f", "a\x00b\x08c\x0bd\x0ce\x1ff", "zero\u200bwidth\u200cjoin\u200der\u2060\ufeff", "\u202eright\u202c \u2066to\u2069 left",
    "\ufeffmark", "\ufffd\ufffe\uffff\U0010ffff", "\ue000\uf8ff\U000f0000", "soft\u00adhyphen", "\u0300\u0301\u0302\u0303 \u20dd", "a" + "\u0301" * 40,
    # What tokenizers write themselves.
    "▁a▁▁b ▁", "Ġa Ċ ĠĠ", "##a ##", "<0x41><0x0A>", "a</w> b</w>", "<unk> [UNK] [CLS]", "\u2047", "⁇", "x" * 300, "ab" * 200, "0" * 70, " " * 100, "\n" * 100, "你" * 100,
]  # fmt: skip

# Spelled special tokens, which the packages' functions for plain texts take for text.
SPECIAL = ["<|endoftext|>", "a <|endoftext|> b", "<|im_start|>user\nhi<|im_end|>\n"]


def is_character(code):
    return not 0xD800 <= code < 0xE000


def every_character(step=512):
    """All characters up to the end of the emoji, assigned or not, and some of the planes behind."""
    planes = [*range(0x1FC00), *range(0x20000, 0x30000, 61), *range(0xE0000, 0xE0200), *range(0xF0000, 0x110000, 4093)]
    codes = [code for code in planes if is_character(code)]
    return ["".join(map(chr, codes[start : start + step])) for start in range(0, len(codes), step)]


def words_of_blocks():
    """Words of the letters of each block of 128 characters, so of every script, with capitals, digits and spaces."""
    texts = []
    for start in range(0, 0x1FC00, 0x80):
        letters = [chr(code) for code in range(start, start + 0x80) if is_character(code)]
        letters = [letter for letter in letters if unicodedata.category(letter)[0] in "LMN"]
        if letters:
            words = ["".join(letters[at : at + 5]) for at in range(0, len(letters), 5)]
            texts.append(" ".join(words) + "\n" + "  ".join(reversed(words)))
    return texts


def mixtures(count=300):
    """Characters of all kinds at random."""
    kinds = [
        " ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u3000", "a", "B", "the", " of", "é", "e\u0301", "ß", "İ", "я", "Я", "א", "ب", "ا", "ह", "ि", "ก", "你", "好", "の", "ア",
        "한", "1", "23", "٣", "½", "'s", "'", "’", "_", "-", "--", ".", ",", "!", "/", "(", "<", "$", "€", "。", "😀", "👍🏽", "\u200d", "\u200b", "\x00", "\x1b", "▁", "Ġ", "##",
        "𝕳", "\ufffd", "\u0301",
    ]  # fmt: skip
    generator = random.Random(17)
    return ["".join(generator.choices(kinds, k=generator.randrange(1, 40))) for _ in range(count)]


def documents():
    """Long texts of the repository: prose, tables, code, and JSON without line breaks."""
    names = ["ARCHITECTURE.md", "docs/benchmarks.md", "xtask/src/test.rs", "tools/llm_samples.py", "tests/llm/templates.json"]
    return [(ROOT / name).read_text()[:60_000] for name in names]


def repeated(part, size=MEGABYTE):
    return part * (size // len(part.encode()))


def at_random(characters, size=MEGABYTE):
    generator = random.Random(5)
    mean = sum(len(character.encode()) for character in characters) / len(characters)
    return "".join(generator.choices(characters, k=int(size / mean)))


def ideographs():
    return [chr(code) for code in range(0x4E00, 0x9FA6)]


# A megabyte without a space that a word could end at, or of nothing else; by name, as most are large.
LONG = {
    "one letter": lambda: repeated("a"),
    "two letters": lambda: repeated("ab"),
    "letters": lambda: at_random("etaoinshrdlucmfwypvbgkjqxz"),
    "cased letters": lambda: at_random("aBcDeFgHiJklmnOPQRsTuvwXYZ"),
    "one ideograph": lambda: repeated("你"),
    "ideographs": lambda: at_random(ideographs()),
    "kana": lambda: at_random([chr(code) for code in range(0x3041, 0x30FB)]),
    "thai": lambda: at_random([chr(code) for code in range(0xE01, 0xE3B)]),
    "one emoji": lambda: repeated("😀"),
    "joined emoji": lambda: repeated("👩‍👩‍👧"),
    "marks": lambda: repeated("\u0301"),
    "accents": lambda: repeated("e\u0301\u0323"),
    "one digit": lambda: repeated("7"),
    "digits": lambda: at_random("0123456789"),
    "punctuation": lambda: at_random("!?.,;:-_()[]{}<>/\\'\"@#$%^&*+=~`|"),
    "one sign": lambda: repeated("-"),
    "apostrophes": lambda: repeated("'"),
    "spaces": lambda: repeated(" "),
    "spaces before a word": lambda: repeated(" ") + "x",
    "line breaks": lambda: repeated("\n"),
    "line breaks before a word": lambda: repeated("\n") + "x",
    "returns": lambda: repeated("\r\n"),
    "tabs": lambda: repeated("\t"),
    "wide spaces": lambda: repeated("\u3000"),
    "mixed spaces": lambda: at_random(" \t\n\r\u00a0\u2003"),
    "zeros": lambda: repeated("\x00"),
    "controls": lambda: at_random([chr(code) for code in range(1, 32) if chr(code) not in "\t\n\r\f\v"]),
    "zero width": lambda: repeated("\u200b"),
    "private": lambda: repeated("\ue000"),
    "base64": lambda: at_random("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"),
    "visible spaces": lambda: repeated("▁"),
    "words with visible spaces": lambda: repeated("word▁"),
    "all planes": lambda: at_random([chr(code) for code in range(0x1FC00) if is_character(code)]),
}
