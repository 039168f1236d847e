/* An extension module with the kernels of one group: kernels.py compiles and links it.
 *
 * The kernels' machine code calls functions of numba's run time: arrays from and to Python, exceptions, memory.
 * numba's package has their source, which is compiled into this module, so that numba is not needed where the
 * module is used. table.h is written for each group; it defines
 *   GROUP_NAME        the module's name, as a string
 *   GROUP_INIT        the name of its init function
 *   wrapper_N         numba's wrapper of kernel N: it crashes if an argument has another type than declared
 *   checked_N         calls it with arguments of the declared types only
 *   struct entry      ENTRIES: full name of a kernel, checked_N, its environment
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

static int arguments_match(const char *name, const char *types, PyObject *arguments, PyObject *named);

#include "table.h"

/* Whether a value has the type at the given place of a signature; the place is moved behind it.
 *   i, f, b   an integer, a number, a truth value
 *   aKSD      a writeable, contiguous array of D dimensions, of kind K and S bytes as numpy names them
 *   (...)     a tuple of these */
static int
has_type(const char **at, PyObject *value)
{
    switch (*(*at)++) {
    case 'i':
        return PyIndex_Check(value);
    case 'f':
        return PyFloat_Check(value) || PyLong_Check(value) || PyArray_CheckScalar(value);
    case 'b':
        return PyBool_Check(value) || PyArray_IsScalar(value, Bool);
    case 'a': {
        const char *type = *at;
        *at += 3;
        if (!PyArray_Check(value))
            return 0;
        PyArrayObject *array = (PyArrayObject *)value;
        return PyArray_DESCR(array)->kind == type[0] && PyArray_ITEMSIZE(array) == type[1] - '0' &&
               PyArray_NDIM(array) == type[2] - '0' && PyArray_ISCARRAY(array);
    }
    default: { /* a tuple */
        Py_ssize_t n = 0;
        if (!PyTuple_Check(value))
            return 0;
        for (; **at != ')'; n++)
            if (n >= PyTuple_GET_SIZE(value) || !has_type(at, PyTuple_GET_ITEM(value, n)))
                return 0;
        ++*at;
        return n == PyTuple_GET_SIZE(value);
    }
    }
}

static int
arguments_match(const char *name, const char *types, PyObject *arguments, PyObject *named)
{
    Py_ssize_t n = 0;
    if (named != NULL && PyDict_GET_SIZE(named)) {
        PyErr_Format(PyExc_TypeError, "%s: a kernel takes no arguments by name", name);
        return 0;
    }
    for (const char *at = types; *at; n++) {
        if (n >= PyTuple_GET_SIZE(arguments))
            break;
        if (!has_type(&at, PyTuple_GET_ITEM(arguments, n))) {
            PyErr_Format(PyExc_TypeError, "%s: argument %zd has another type than declared", name, n + 1);
            return 0;
        }
    }
    return 1; /* the wrapper counts the arguments */
}

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
