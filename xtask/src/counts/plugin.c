/*
 * A plugin of QEMU's user mode (TCG plugins, version 1 of their interface): counts the instructions that a program of one thread
 * executes. Before each write to standard error, it prints the count since the last one, as a line of the file in its argument
 * `out`.
 *
 * The declarations are those of QEMU's `qemu-plugin.h`, which Debian's packages do not contain.
 */
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
enum { QEMU_PLUGIN_INLINE_ADD_U64 };
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int, void *, uint64_t);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, unsigned, int64_t, uint64_t, uint64_t,
    uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t));
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, void (*)(qemu_plugin_id_t, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);

int qemu_plugin_version = 1;

/* `write` of Linux for AArch64. */
enum { SYS_WRITE = 64 };

static uint64_t executed, at_last_write;
static FILE *out;

static void translate(qemu_plugin_id_t id, struct qemu_plugin_tb *block) {
    qemu_plugin_register_vcpu_tb_exec_inline(block, QEMU_PLUGIN_INLINE_ADD_U64, &executed, qemu_plugin_tb_n_insns(block));
}

static void before_syscall(qemu_plugin_id_t id, unsigned cpu, int64_t number, uint64_t file, uint64_t a2, uint64_t a3, uint64_t a4,
    uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8) {
    if (number == SYS_WRITE && file == 2) {
        fprintf(out, "%" PRIu64 "\n", executed - at_last_write);
        at_last_write = executed;
    }
}

static void finish(qemu_plugin_id_t id, void *unused) {
    fclose(out);
}

int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv) {
    for (int i = 0; i < argc; i++)
        if (strncmp(argv[i], "out=", 4) == 0) out = fopen(argv[i] + 4, "w");
    if (!out) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translate);
    qemu_plugin_register_vcpu_syscall_cb(id, before_syscall);
    qemu_plugin_register_atexit_cb(id, finish, NULL);
    return 0;
}
