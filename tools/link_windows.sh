#!/bin/sh
# Links a Python module for Windows. maturin tells the linker to export the first function of the module under a name that
# includes the package, and no function has that name. All else is as cargo-zigbuild links.
for argument; do
    case $argument in
    */maturin/*.def) sed -i 's/PyInit_.*\./PyInit_/' "$argument" ;;
    esac
done
exec cargo-zigbuild zig cc -- -g -fno-sanitize=all -target x86_64-windows-gnu "$@"
