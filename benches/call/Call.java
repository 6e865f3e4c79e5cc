import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.pytorch.executorch.EValue;
import org.pytorch.executorch.Module;
import org.pytorch.executorch.Tensor;

/** Calls from Java: {@code Call PROGRAM}. Loads, calls and answers as the programs with {@code callers.h} do. */
final class Call {
  private static final int CALLS = 100;

  private Call() {}

  public static void main(String[] arguments) throws IOException {
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
    long[] sizes = {2, 3};
    EValue x = EValue.from(Tensor.fromBlob(new float[] {1, 1, 1, 1, 1, 1}, sizes));
    EValue y = EValue.from(Tensor.fromBlob(new float[] {2, 2, 2, 2, 2, 2}, sizes));
    try (Module module = Module.load(arguments[0])) {
      for (String line = requests.readLine(); line != null; line = requests.readLine()) {
        double[] samples = new double[Integer.parseInt(line.trim())];
        for (int batch = 0; batch < samples.length; batch++) {
          float sum = 0;
          long begin = System.nanoTime();
          for (int i = 0; i < CALLS; i++) {
            sum += module.forward(x, y)[0].toTensor().getDataAsFloatArray()[0];
          }
          samples[batch] = (double) (System.nanoTime() - begin) / CALLS;
          if (sum != 3.0f * CALLS) {
            System.out.println("error a wrong sum");
            System.exit(1);
          }
        }
        Arrays.sort(samples);
        System.out.println(samples[samples.length / 2]);
      }
    }
  }
}
