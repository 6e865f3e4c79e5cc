import org.pytorch.executorch.BackendOption

fun option() = BackendOption("key", 1)
