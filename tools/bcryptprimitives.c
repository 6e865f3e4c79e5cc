/* The one function of bcryptprimitives.dll that Rust's standard library calls, for versions of Wine that lack it. */
int __stdcall SystemFunction036(void *buffer, unsigned long length);

__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *buffer, unsigned long long length) {
    return SystemFunction036(buffer, (unsigned long)length);
}
