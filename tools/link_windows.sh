#!/bin/sh
# Links what is built for a Python module for Windows, as cargo-zigbuild links, but for the definition file that maturin hands to
# the linker: it exports the first function of the module, under a name that includes the package, which no function has.
previous=
for argument; do
    if [ "$previous" = -o ]; then
        output=${argument##*/}
    fi
    previous=$argument
done
for argument; do
    shift
    case $argument in
    */maturin/*.def)
        case $output in
        _rushlight.*) sed -i 's/PyInit_.*\./PyInit_/' "$argument" ;;
        # A dependency that is a shared library too has no such function.
        *) continue ;;
        esac
        ;;
    esac
    set -- "$@" "$argument"
done
exec cargo-zigbuild zig cc -- -g -fno-sanitize=all -target x86_64-windows-gnu "$@"
