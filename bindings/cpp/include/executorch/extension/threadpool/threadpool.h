#error "rushlight: there is no thread pool of the process: `threads` of rl_load_options (rushlight.h) is how many threads a module uses"
