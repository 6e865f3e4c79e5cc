//! Scales and zero points of quantized tensors.

use std::fmt;
use std::sync::Arc;

use bytemuck::{Pod, PodCastError};

use crate::Bytes;

/// A number for each group of a quantized tensor, in row-major order of the groups. Cloning and transposing copy nothing.
#[derive(Clone)]
pub struct Parameters<T> {
    numbers: Numbers<T>,
    /// Rows and columns of the groups as the numbers have them, if their order is the transposed one.
    turned: Option<[usize; 2]>,
}

#[derive(Clone)]
enum Numbers<T> {
    /// One number, repeated.
    Same(T, usize),
    /// Aligned elements of this machine's byte order.
    Each(Bytes),
    /// A small factor for each, and a unit for some in a row.
    Products(Arc<Products<T>>, fn(T, i8) -> T),
}

/// Numbers that are each the product of a factor of its own and a unit, which some in a row share.
#[derive(Clone, Debug, PartialEq)]
pub struct Products<T> {
    pub factors: Vec<i8>,
    /// One for each `each` factors.
    pub units: Vec<T>,
    pub each: usize,
}

impl From<Products<f32>> for Parameters<f32> {
    fn from(products: Products<f32>) -> Self {
        let numbers = Numbers::Products(Arc::new(products), |unit, factor| unit * f32::from(factor));
        Self { numbers, turned: None }
    }
}

impl<T: Pod + Send + Sync> Parameters<T> {
    /// `count` times the same number.
    pub const fn same(number: T, count: usize) -> Self {
        Self { numbers: Numbers::Same(number, count), turned: None }
    }

    /// Shares bytes that hold elements of this machine's byte order.
    ///
    /// # Errors
    /// The bytes are no whole elements, or are not aligned as those are.
    pub fn shared(bytes: Bytes) -> Result<Self, PodCastError> {
        bytemuck::try_cast_slice::<u8, T>(&bytes)?;
        Ok(Self { numbers: Numbers::Each(bytes), turned: None })
    }

    /// Number of groups.
    pub fn len(&self) -> usize {
        match &self.numbers {
            Numbers::Same(_, count) => *count,
            Numbers::Each(bytes) => bytes.len() / size_of::<T>().max(1),
            Numbers::Products(products, _) => products.factors.len(),
        }
    }

    /// True if there are no groups.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of a group.
    pub fn get(&self, group: usize) -> Option<T> {
        let stored = match self.turned {
            None => group,
            Some([rows, columns]) => {
                let column = group.checked_div(rows).filter(|column| *column < columns)?;
                group % rows * columns + column
            }
        };
        self.numbers.get(stored)
    }

    /// All numbers.
    pub fn iter(&self) -> impl Iterator<Item = T> {
        (0..self.len()).filter_map(|group| self.get(group))
    }

    /// True if a condition holds for all numbers, in whichever order they are asked.
    pub fn all(&self, mut holds: impl FnMut(T) -> bool) -> bool {
        match &self.numbers {
            Numbers::Same(number, count) => *count == 0 || holds(*number),
            Numbers::Each(bytes) => elements(bytes).iter().all(|number| holds(*number)),
            Numbers::Products(products, _) => {
                (0..products.factors.len()).all(|at| self.numbers.get(at).is_some_and(&mut holds))
            }
        }
    }

    /// The numbers in their order, if they are stored in it.
    pub fn as_slice(&self) -> Option<&[T]> {
        match &self.numbers {
            Numbers::Each(bytes) if self.turned.is_none() => Some(elements(bytes)),
            _ => None,
        }
    }

    /// The products in their order, if the numbers are stored as such.
    pub fn as_products(&self) -> Option<&Products<T>> {
        match &self.numbers {
            Numbers::Products(products, _) if self.turned.is_none() => Some(products),
            _ => None,
        }
    }

    /// The parameters of the transpose of a matrix with `rows` x `columns` groups; `None` if `len` is not their product.
    #[must_use]
    pub fn transposed(&self, [rows, columns]: [usize; 2]) -> Option<Self> {
        if rows.checked_mul(columns) != Some(self.len()) {
            return None;
        }
        let turned = match self.turned {
            None => Some([rows, columns]),
            Some(before) => (before == [columns, rows]).then_some(None)?,
        };
        Some(Self { numbers: self.numbers.clone(), turned })
    }
}

impl<T: Pod> Numbers<T> {
    fn get(&self, at: usize) -> Option<T> {
        match self {
            Self::Same(number, count) => (at < *count).then_some(*number),
            Self::Each(bytes) => elements(bytes).get(at).copied(),
            Self::Products(products, product) => {
                let unit = products.units.get(at.checked_div(products.each)?)?;
                Some(product(*unit, *products.factors.get(at)?))
            }
        }
    }
}

/// The elements of bytes that were checked when they were taken.
fn elements<T: Pod>(bytes: &Bytes) -> &[T] {
    bytemuck::try_cast_slice(bytes).unwrap_or_default()
}

/// Numbers that others may share.
struct Held<T>(Vec<T>);

impl<T: Pod> AsRef<[u8]> for Held<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

impl<T: Pod + Send + Sync> From<Vec<T>> for Parameters<T> {
    fn from(numbers: Vec<T>) -> Self {
        Self { numbers: Numbers::Each(Bytes::new(Held(numbers))), turned: None }
    }
}

impl<T: Pod + Send + Sync + PartialEq> PartialEq for Parameters<T> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.numbers, &other.numbers) {
            (Numbers::Same(number, count), Numbers::Same(..)) => {
                *count == other.len() && (*count == 0 || other.get(0) == Some(*number))
            }
            _ => self.len() == other.len() && self.iter().eq(other.iter()),
        }
    }
}

impl<T: Pod + Send + Sync + fmt::Debug> fmt::Debug for Parameters<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transposing_changes_the_order_and_back() {
        let numbers = Parameters::from(vec![0, 1, 2, 3, 4, 5]);
        let turned = numbers.transposed([2, 3]).unwrap();
        assert_eq!(turned.iter().collect::<Vec<i32>>(), [0, 3, 1, 4, 2, 5]);
        assert_eq!((turned.len(), turned.get(6), turned.as_slice()), (6, None, None));
        assert_eq!(turned, Parameters::from(vec![0, 3, 1, 4, 2, 5]));
        assert!(turned.transposed([2, 3]).is_none() && numbers.transposed([2, 2]).is_none());
        assert_eq!(turned.transposed([3, 2]).unwrap().as_slice(), Some(&[0, 1, 2, 3, 4, 5][..]));
    }

    #[test]
    fn numbers_that_are_all_the_same_equal_a_list_of_them() {
        let same = Parameters::same(7, 3);
        assert_eq!(same, Parameters::from(vec![7, 7, 7]));
        assert_ne!(same, Parameters::from(vec![7, 7]));
        assert_ne!(same, Parameters::same(8, 3));
        assert_eq!((same.get(2), same.get(3)), (Some(7), None));
        assert_eq!(format!("{same:?}"), "[7, 7, 7]");
    }

    #[test]
    fn products_are_multiplied_when_they_are_read() {
        let products = Products { factors: vec![1, -2, 3, 0], units: vec![0.5f32, 2.0], each: 2 };
        let numbers = Parameters::from(products.clone());
        assert_eq!(numbers, Parameters::from(vec![0.5, -1.0, 6.0, 0.0]));
        assert_eq!((numbers.len(), numbers.get(4), numbers.as_slice()), (4, None, None));
        assert!(numbers.all(|number| number < 7.0) && !numbers.all(|number| number > 0.0));
        assert_eq!(numbers.as_products(), Some(&products));
        let turned = numbers.transposed([2, 2]).unwrap();
        assert_eq!(turned.iter().collect::<Vec<f32>>(), [0.5, 6.0, -1.0, 0.0]);
        assert!(turned.as_products().is_none());
    }

    #[test]
    fn shared_bytes_are_whole_aligned_elements() {
        let bytes = Bytes::new(Held(vec![1.0f32, 2.0, 3.0]));
        let shared = Parameters::<f32>::shared(bytes.slice(4..12).unwrap()).unwrap();
        assert_eq!(shared.as_slice(), Some(&[2.0, 3.0][..]));
        assert!(Parameters::<f32>::shared(bytes.slice(1..9).unwrap()).is_err());
        assert!(Parameters::<f32>::shared(bytes.slice(0..6).unwrap()).is_err());
    }
}
