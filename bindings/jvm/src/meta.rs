//! Method metadata as arrays.

use jni::Env;
use jni::objects::{JLongArray, JObject, JObjectArray, JString};
use rushlight::{MethodMeta, ValueInfo};

use crate::error::Result;

/// `{backends, input names, output names, inputs, outputs, {signature}}`, as `MethodMetadata.of` reads it. Inputs and outputs are
/// arrays of long: the tag of each, and of tensors the element type, 1 if the shape is dynamic, the bytes, the rank and the sizes.
pub fn describe<'local>(env: &mut Env<'local>, meta: &MethodMeta) -> Result<JObjectArray<'local, JObject<'local>>> {
    let parts: [JObject<'local>; 6] = [
        strings(env, meta.backends.iter().map(String::as_str))?.into(),
        strings(env, meta.input_names.iter().map(String::as_str))?.into(),
        strings(env, meta.output_names.iter().map(String::as_str))?.into(),
        longs(env, &meta.inputs)?.into(),
        longs(env, &meta.outputs)?.into(),
        strings(env, meta.signature.as_ref().map(ToString::to_string).as_deref())?.into(),
    ];
    let array = JObjectArray::<JObject>::new(env, parts.len(), JObject::null())?;
    for (index, part) in parts.iter().enumerate() {
        array.set_element(env, index, part)?;
    }
    Ok(array)
}

/// An array of strings.
pub fn strings<'local, 's>(
    env: &mut Env<'local>,
    texts: impl IntoIterator<Item = &'s str>,
) -> Result<JObjectArray<'local, JString<'local>>> {
    let texts: Vec<&str> = texts.into_iter().collect();
    let array = JObjectArray::<JString>::new(env, texts.len(), JString::null())?;
    for (index, text) in texts.iter().enumerate() {
        let text = JString::from_str(env, text)?;
        array.set_element(env, index, &text)?;
        env.delete_local_ref(text);
    }
    Ok(array)
}

fn longs<'local>(env: &mut Env<'local>, values: &[ValueInfo]) -> Result<JLongArray<'local>> {
    let mut words: Vec<i64> = Vec::new();
    for value in values {
        match value {
            ValueInfo::None => words.push(0),
            ValueInfo::Tensor(info) => {
                words.extend([1, info.dtype.code().into(), info.is_dynamic.into()]);
                words.push(i64::try_from(info.nbytes).unwrap_or(i64::MAX));
                words.push(info.sizes.len() as i64);
                words.extend(info.sizes.iter().map(|size| *size as i64));
            }
            ValueInfo::String(_) => words.push(2),
            ValueInfo::Double(_) => words.push(3),
            ValueInfo::Int(_) => words.push(4),
            ValueInfo::Bool(_) => words.push(5),
            ValueInfo::List => words.push(6),
        }
    }
    let array = JLongArray::new(env, words.len())?;
    array.set_region(env, 0, &words)?;
    Ok(array)
}
