/* An extension module with the kernels of one group: kernels.py compiles and links it.
 *
 * The kernels' machine code calls functions of numba's run time: arrays from and to Python, exceptions, memory.
 * numba's package has their source, which is compiled into this module, so that numba is not needed where the
 * module is used. table.h is written for each group; it defines
 *   GROUP_NAME        the module's name, as a string
 *   GROUP_INIT        the name of its init function
 *   struct entry      ENTRIES: full name of a kernel, its wrapper, its environment
 *   struct constants  CONSTANTS: an environment, and its pickled list of constants
 */

#define PYCC_COMPILING
#include "_numba_common.h"
#include "_pymodule.h"
#define NUMBA_EXPORT_FUNC(type) VISIBILITY_HIDDEN type
#define NUMBA_EXPORT_DATA(type) VISIBILITY_HIDDEN type
#include "_helperlib.c"
#include "_dynfunc.c"
#include "core/runtime/_nrt_python.c"
#include "core/runtime/nrt.h"

/* numba's hash functions read these; no kernel hashes. */
int64_t _numba_hashsecret_siphash_k0;
int64_t _numba_hashsecret_siphash_k1;
int64_t _numba_hashsecret_djbx33a_suffix;

struct entry {
    const char *name;
    PyCFunctionWithKeywords wrapper;
    void **environment;
};

struct constants {
    void **environment;
    const char *pickled;
    int length;
};

#include "table.h"

/* numba's code gives the address of the variable PyExc_..., where Python's functions take the exception itself:
 * its compiler in memory places the exception at that address. */
static PyObject *
exception_at(PyObject *given)
{
    PyObject **variables[] = {
        &PyExc_IndexError, &PyExc_MemoryError, &PyExc_NameError, &PyExc_OverflowError, &PyExc_RuntimeError,
        &PyExc_StopIteration, &PyExc_SystemError, &PyExc_TypeError, &PyExc_ValueError, &PyExc_ZeroDivisionError,
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if ((PyObject *)variables[i] == given)
            return *variables[i];
    return given;
}

VISIBILITY_HIDDEN void
kernels_SetString(PyObject *exception, const char *text)
{
    PyErr_SetString(exception_at(exception), text);
}

VISIBILITY_HIDDEN void
kernels_SetNone(PyObject *exception)
{
    PyErr_SetNone(exception_at(exception));
}

VISIBILITY_HIDDEN PyObject *
kernels_Format(PyObject *exception, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    PyErr_FormatV(exception_at(exception), format, values);
    va_end(values);
    return NULL;
}

static void *
numpy_is_loaded(void)
{
    import_array(); /* returns NULL on failure */
    return (void *)GROUP_NAME;
}

static int
make_environments(PyObject *module)
{
    for (const struct constants *one = CONSTANTS; one->environment; one++) {
        EnvironmentObject *made = env_new_empty(&EnvironmentType);
        if (made == NULL)
            return -1;
        made->globals = PyModule_GetDict(module);
        Py_XINCREF(made->globals);
        made->consts = numba_unpickle(one->pickled, one->length, NULL);
        if (made->consts == NULL)
            return -1;
        *one->environment = made; /* kept for ever: the code holds its address */
    }
    return 0;
}

static int
add_kernels(PyObject *module)
{
    PyObject *kernels = PyDict_New();
    PyObject *doc = PyUnicode_FromString("A compiled kernel.");
    if (kernels == NULL || doc == NULL)
        return -1;
    for (const struct entry *one = ENTRIES; one->name; one++) {
        PyObject *name = PyUnicode_FromString(one->name);
        PyObject *kernel = name == NULL ? NULL : pycfunction_new(
            module, name, doc, (PyCFunction)one->wrapper, (EnvironmentObject *)*one->environment, NULL);
        int failed = kernel == NULL || PyDict_SetItem(kernels, name, kernel);
        Py_XDECREF(name);
        Py_XDECREF(kernel);
        if (failed)
            return -1;
    }
    Py_DECREF(doc);
    return PyModule_AddObject(module, "kernels", kernels);
}

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, GROUP_NAME, "Compiled kernels.", -1, NULL};

PyMODINIT_FUNC
GROUP_INIT(void)
{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL || numpy_is_loaded() == NULL || init_dynfunc_module(module))
        return NULL;
    NRT_MemSys_init();
    if (init_nrt_python_module(module) || make_environments(module) || add_kernels(module))
        return NULL;
    return module;
}
