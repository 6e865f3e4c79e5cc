// The interface as a program in Kotlin uses it: without casts and `!!`. Warnings are errors, so that a safe call of what cannot be null
// does not compile, nor an unsafe one of what can.

import org.pytorch.executorch.DType
import org.pytorch.executorch.EValue
import org.pytorch.executorch.ExecutorchRuntimeException
import org.pytorch.executorch.Module
import org.pytorch.executorch.Tensor
import org.pytorch.executorch.extension.llm.LlmCallback
import org.pytorch.executorch.extension.llm.LlmGenerationConfig
import org.pytorch.executorch.extension.llm.LlmModule

fun main(arguments: Array<String>) {
    val (digits, programs, llama, tokenizer) = arguments
    Module.load(digits, Module.LOAD_MODE_MMAP).use { module ->
        val image = Tensor.ones(longArrayOf(1, 1, 8, 8), DType.FLOAT)
        val logits = module.forward(EValue.from(image))[0].toTensor()
        check(logits.dataAsFloatArray.size == 10 && logits.shape().contentEquals(longArrayOf(1, 10)))
        val input = module.getMethodMetadata("forward").inputs[0]
        check(input.dtype == DType.FLOAT && input.shape?.size == 4 && !input.isDynamic)
        try {
            module.forward()
            error("it was accepted")
        } catch (refused: ExecutorchRuntimeException) {
            check(refused.errorCode == ExecutorchRuntimeException.INVALID_ARGUMENT)
            check(refused.expected?.contains("f32") == true && refused.detailedError.isNotEmpty())
        }
    }
    Module.load(programs, Module.Options().threads(1)).use { module ->
        val name = module.getMethodMetadata("loop").inputs[0].name ?: error("the program has names")
        val count = module.execute("loop", mapOf(name to EValue.from(Tensor.fromBlob(longArrayOf(3), longArrayOf()))))
        check(count.values.single().toTensor().dataAsLongArray.single() == 3L)
    }
    LlmModule(llama, tokenizer, 0f).use { model ->
        val config = LlmGenerationConfig.create().maxNewTokens(4).temperature(0f).echo(false).build()
        check(!config.isEcho && config.seqLen == -1)
        val answer = StringBuilder()
        model.generate("lN,,LlI", config, object : LlmCallback {
            override fun onResult(result: String) {
                answer.append(result)
            }
        })
        model.resetContext()
        model.generate("lN,,LlI", config, LlmCallback { answer.append(it) })
        println(answer)
    }
}
