import org.pytorch.executorch.Module

fun load() = Module.load(modelPath = "model.pte", numThreads = 2)
