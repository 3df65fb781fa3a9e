/* nvrtc PROGRAM HEADER ARCH [option...]: compiles PROGRAM at run time, with HEADER as a named
   header and no include path, and wants a kernel in the PTX. */
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *read_text(const char *path) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size;
    if (file && !fseek(file, 0, SEEK_END) && (size = ftell(file)) >= 0) {
        text = (char *)calloc(1, (size_t)size + 1);
        rewind(file);
        if (text && fread(text, 1, (size_t)size, file) != (size_t)size) text[0] = 0;
    }
    if (file) fclose(file);
    return text;
}

int main(int argc, char **argv) {
    const char *options[16], *name = "specverify.cuh", *header;
    char *source, *ptx, arch[64], *log;
    size_t size = 0;
    nvrtcProgram program;
    int num_options = 0, failed;
    if (argc < 4 || argc > 16) return 2;
    source = read_text(argv[1]);
    header = read_text(argv[2]);
    if (!source || !header) return 2;
    snprintf(arch, sizeof arch, "--gpu-architecture=%s", argv[3]);
    options[num_options++] = arch;
    for (int i = 4; i < argc; ++i) options[num_options++] = argv[i];
    if (nvrtcCreateProgram(&program, source, "program.cu", 1, &header, &name) != NVRTC_SUCCESS)
        return 2;
    failed = nvrtcCompileProgram(program, num_options, options) != NVRTC_SUCCESS;
    nvrtcGetProgramLogSize(program, &size);
    log = (char *)calloc(1, size + 1);
    nvrtcGetProgramLog(program, log);
    if (size > 1) printf("%s\n", log);
    if (failed || size > 1) return 1; /* a warning is a failure, too */
    nvrtcGetPTXSize(program, &size);
    ptx = (char *)calloc(1, size + 1);
    nvrtcGetPTX(program, ptx);
    return strstr(ptx, ".entry long_names") ? 0 : 1;
}
