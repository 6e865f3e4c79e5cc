// Talks to a language model: `build/{{name}}`. An empty line ends the program.
#include <iostream>
#include <rushlight.hpp>
#include <string>
#include <vector>

static void talk() {
  rushlight::llm::Model model("model.pte");
  std::vector<rushlight::llm::Message> messages;
  std::string question;
  while (std::cout << "> " << std::flush && std::getline(std::cin, question) && !question.empty()) {
    messages.push_back({"user", question});
    rushlight::llm::GenerateOptions options;
    options.max_new_tokens = 500;
    std::string answer;
    auto session = model.session();
    session.generate(model.chat(messages), options, [&](std::string_view piece) {
      answer += piece;
      std::cout << piece << std::flush;
    });
    std::cout << '\n';
    messages.push_back({"assistant", answer});
  }
}

int main() {
  try {
    talk();
  } catch (const rushlight::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
