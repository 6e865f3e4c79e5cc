//! Faults that the runtime itself finds, and how its functions report them.
//!
//! Sentences are written where they are printed, so that a program that prints none does not hold them.

use core::fmt;

use crate::error::{Code, Detail, Error, Role};

/// Lists the faults: name, code, and the sentence or, where it names numbers, its format.
macro_rules! faults {
    ($($(#[$condition:meta])? $name:ident: $code:ident, $text:literal $(, $number:ident)*;)*) => {
        /// Something wrong with a program, with the memory that it is given, or with its inputs.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Fault {
            $($(#[$condition])? #[doc = $text] $name,)*
        }

        impl Fault {
            /// The error code for this fault.
            pub const fn code(self) -> Code {
                match self {
                    $($(#[$condition])? Self::$name => Code::$code,)*
                }
            }

            /// Writes the sentence, with the numbers that it names.
            pub(crate) fn describe(self, numbers: &Numbers, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($(#[$condition])? Self::$name => write!(f, $text $(, $number = numbers.$number)*),)*
                }
            }
        }
    };
}

/// The numbers of a fault; most often the needed and the available amount.
pub(crate) struct Numbers {
    pub(crate) a: usize,
    pub(crate) b: usize,
}

faults! {
    NoMethod: NotFound, "the program has no method of this name";
    NoAttribute: NotFound, "the method has no attribute of this name";
    SharedAttributes: NotSupported, "attributes of methods with shared planned buffers cannot be read";
    MissingOperators: OperatorMissing, "{a} operators are not in the registry, the first is operator {b} of the method", a, b;
    NoBackend: NotFound, "the program needs a backend that is not registered";
    UnknownOperator: InvalidProgram, "an instruction names an operator that the plan does not have";
    UnknownDelegate: InvalidProgram, "an instruction names a delegate that the plan does not have";
    UnknownInput: InvalidProgram, "the input names a value that does not exist";
    Arguments: InvalidProgram, "arguments of the operator: expected {a}, got {b}", a, b;
    DelegateOutputs: InvalidProgram, "outputs of the delegate: expected {a}, got {b}", a, b;
    DamagedShapes: InvalidProgram, "what the program says of the sizes of its inputs is damaged";
    Changed: InvalidProgram, "the program changed while it was read";

    NegativeSize: InvalidProgram, "a size is negative";
    Unbounded: NotSupported, "tensors without an upper bound of their size are not supported";
    UnknownBuffer: InvalidProgram, "a tensor is planned in a buffer that the method does not have";
    BeyondBuffer: InvalidProgram, "a tensor is planned beyond the end of its buffer";
    ConstantData: InvalidProgram, "data of a constant: {a} bytes are needed, {b} are available", a, b;
    InitialData: InvalidProgram, "initial data of a buffer: {a} bytes are needed, {b} are available", a, b;
    UnalignedProgram: InvalidArgument, "the program's bytes (use a 16-byte aligned buffer) must be aligned to {a} bytes", a;
    UnalignedBuffer: InvalidArgument, "a planned tensor must be aligned to {a} bytes", a;
    UnalignedData: InvalidArgument, "the tensor's data must be aligned to {a} bytes", a;

    NoExternalData: NotFound, "the program needs external data of this name, which no data file holds";
    ExternalLayout: InvalidExternalData, "the external tensor has another type, size or dim order";
    ExternalData: InvalidExternalData, "the external tensor has too few bytes: {a} are needed, {b} are available", a, b;
    DuplicateKey: InvalidExternalData, "two sources of named data have the same key";

    Overlap: InvalidProgram, "argument {a} is written and shares memory with argument {b}", a, b;
    WrittenConstant: InvalidProgram, "an instruction writes to a constant";
    TooEntangled: InvalidProgram, "the program has too many values that may share memory";

    MethodMemory: MemoryAllocationFailed, "method memory: {a} bytes are needed, {b} are available", a, b;
    HeapMemory: MemoryAllocationFailed, "heap memory: {a} bytes are needed, {b} are available", a, b;
    LimitedMemory: MemoryAllocationFailed, "memory of the method: {a} bytes more are needed, its limit leaves {b}", a, b;
    PlannedMemory: MemoryAllocationFailed, "planned buffer: {a} bytes are needed, {b} are available", a, b;
    TempMemory: MemoryAllocationFailed, "temporary memory of the operator: {a} bytes are needed, {b} are available", a, b;
    OutputMemory: MemoryAllocationFailed, "memory for the output: {a} bytes are needed, {b} are available", a, b;
    StridedData: InvalidArgument, "data of the strided tensor: {a} bytes are needed, {b} are available", a, b;
    TooManyApart: InvalidArgument, "too many planned buffers are given apart";
    SharedBusy: InvalidState, "another method that shares the planned buffers is executing, or its outputs are still in use";

    Inputs: InvalidArgument, "inputs: expected {a}, got {b}", a, b;
    InputRank: InvalidArgument, "rank of the input: expected {a}, got {b}", a, b;
    SizeRule: InvalidArgument, "the sizes of the inputs, here {b}, break rule {a} of the program", a, b;
    FixedInput: InvalidArgument, "a value that was fixed when the program was exported has changed";
    WrittenInput: InvalidArgument, "the program writes to this input: it needs a mutable tensor";
    InputStrides: InvalidArgument, "the strides of this unplanned input differ from the program's dim order; copy it first";
    OutputRank: InvalidArgument, "rank of the output: expected {a}, got {b}", a, b;
    OutputHasMemory: InvalidState, "the output has memory already";
    NotATensor: InvalidArgument, "there is no output with this index that is a tensor";
    NoMemory: InvalidState, "the tensor has no memory yet";
    EndlessLoop: InvalidProgram, "the method has run 10 million instructions: it seems to loop without end";

    NoExecute: NotImplemented, "the delegate can neither be executed nor submitted";
    NoOptionBackend: NotFound, "the option is for a backend that is not registered, or that the method does not use";
    FixedOption: NotSupported, "the option can be set only when a method is loaded";
    #[cfg(feature = "alloc")]
    NoState: InvalidState, "a state of the delegate is missing: add the method's states to the session first";
    #[cfg(feature = "alloc")]
    StateType: DelegateInvalidHandle, "a state is not of the type that the delegate expects";
    #[cfg(feature = "alloc")]
    StateBytes: InvalidProgram, "bytes of a state that delegates share: expected {a}, got {b}", a, b;
    #[cfg(feature = "alloc")]
    StateHook: NotImplemented, "the backend cannot do this with its state";
    #[cfg(feature = "alloc")]
    TooManyStates: InvalidProgram, "a delegate declares more than {a} states", a;
    #[cfg(feature = "alloc")]
    SavedState: InvalidExternalData, "the saved state is damaged, or of another program";
    #[cfg(feature = "alloc")]
    NoBuffers: DelegateMemoryAllocationFailed, "the delegate names device memory and allocates none";
    #[cfg(feature = "alloc")]
    ShortBuffer: DelegateMemoryAllocationFailed, "buffer of the device: {a} bytes are needed, {b} were allocated", a, b;
    #[cfg(feature = "alloc")]
    NoBuffer: DelegateInvalidHandle, "the argument is not in device memory";
    #[cfg(feature = "alloc")]
    BufferType: DelegateInvalidHandle, "the buffer is not of the type that the delegate expects";
    #[cfg(feature = "alloc")]
    Abandoned: InvalidState, "the execution has failed before";
    OtherMethod: InvalidArgument, "the executions of a batch are of different methods";

    TensorBytes: InvalidArgument, "bytes of the tensor: expected {a}, got {b}", a, b;
    TensorRank: InvalidArgument, "expected rank at most 16, got rank {a}", a;
    TensorSize: InvalidArgument, "the size of the tensor overflows";
    Strides: InvalidArgument, "strides: expected {a}, got {b}", a, b;
    HasStrides: InvalidArgument, "the tensor has strides";
}

impl From<Fault> for Error {
    /// The error of a fault whose sentence names no numbers.
    #[cold]
    fn from(fault: Fault) -> Self {
        Self::fault(fault, 0, 0)
    }
}

/// A fault was found, and is in the [`Report`]. Errors are too large to hand from call to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reported;

pub(crate) type Checked<T> = Result<T, Reported>;

/// The first error that was found while a method is loaded or its inputs are bound.
pub(crate) struct Report {
    error: Option<Error>,
}

impl Report {
    pub(crate) const fn new() -> Self {
        Self { error: None }
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn error(&mut self, error: Error) -> Reported {
        self.error = Some(error);
        Reported
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn fault(&mut self, fault: Fault, needed: usize, available: usize) -> Reported {
        self.error(Error::fault(fault, needed, available))
    }

    /// A fault whose sentence names no numbers.
    #[cold]
    #[inline(never)]
    pub(crate) fn plain(&mut self, fault: Fault) -> Reported {
        self.fault(fault, 0, 0)
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn detail(&mut self, detail: Detail) -> Reported {
        self.error(detail.into())
    }

    /// Points the error at an argument, input, output or value, unless it points somewhere already.
    #[cold]
    #[inline(never)]
    pub(crate) fn at(&mut self, role: Role, index: usize) -> Reported {
        if let Some(error) = &mut self.error {
            *error = error.at(role, index);
        }
        Reported
    }

    /// Points the error at an instruction.
    #[cold]
    #[inline(never)]
    pub(crate) fn instruction(&mut self, index: usize, operator: Option<&'static str>) -> Reported {
        if let Some(error) = &mut self.error {
            *error = error.instruction(index, operator);
        }
        Reported
    }

    /// The error that was found; else memory ran short.
    #[cold]
    #[inline(never)]
    pub(crate) fn take(self, shortage: Shortage) -> Error {
        self.error.unwrap_or(shortage.into())
    }
}

/// The bytes of method memory that were needed and available when there was too little. The functions that hand out
/// memory leave it behind and report nothing else.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shortage {
    pub(crate) needed: usize,
    pub(crate) available: usize,
}

impl From<Shortage> for Error {
    #[cold]
    fn from(shortage: Shortage) -> Self {
        Self::fault(Fault::MethodMemory, shortage.needed, shortage.available)
    }
}

/// The kind of a value or an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
#[repr(u8)]
pub enum Kind {
    None,
    Int,
    Double,
    Bool,
    String,
    Tensor,
    IntList,
    DoubleList,
    BoolList,
    TensorList,
    OptionalTensorList,
    /// An int, a double or a bool.
    Number,
    /// A bool, or a tensor of bools.
    Condition,
    /// An entry of a list of tensors that is one.
    ListedTensor,
    /// Any kind that can be an input.
    Input,
    /// Any kind that can be an output.
    Output,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Int => "an int",
            Self::Double => "a double",
            Self::Bool => "a bool",
            Self::String => "a string",
            Self::Tensor => "a tensor",
            Self::IntList => "a list of ints",
            Self::DoubleList => "a list of doubles",
            Self::BoolList => "a list of bools",
            Self::TensorList => "a list of tensors",
            Self::OptionalTensorList => "a list of optional tensors",
            Self::Number => "a number",
            Self::Condition => "a bool or a bool tensor",
            Self::ListedTensor => "a tensor in the list",
            Self::Input => "an input that can be set",
            Self::Output => "a tensor or a scalar",
        })
    }
}
