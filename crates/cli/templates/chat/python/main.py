"""Talks to a language model: `python main.py`. An empty line ends the program."""

import pathlib

from rushlight.llm import LLM

HERE = pathlib.Path(__file__).parent


def main():
    llm = LLM(HERE / "model.pte")
    session = llm.session()
    messages = []
    while True:
        try:
            question = input("> ")
        except EOFError:
            break
        if not question:
            break
        messages.append({"role": "user", "content": question})
        answer = ""
        # The session has read the earlier messages, and reads only the new one.
        for piece in session.chat(messages, stream=True, max_new_tokens=500):
            answer += piece
            print(piece, end="", flush=True)
        print()
        messages.append({"role": "assistant", "content": answer})


if __name__ == "__main__":
    main()
