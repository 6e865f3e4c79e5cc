import org.pytorch.executorch.Module

fun load() = Module.Companion.load("model.pte")
