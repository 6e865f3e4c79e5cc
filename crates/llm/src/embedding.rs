//! Embeddings of texts, from the hidden states of their tokens.

/// The pooling of a text's hidden states to one vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pooling {
    /// The hidden state of the last token, which has seen all others.
    #[default]
    Last,
    /// The mean of all hidden states.
    Mean,
}

/// Pools hidden states as [`Session::embed`](crate::Session::embed) computes them.
#[derive(Clone, Debug)]
pub struct Pool {
    pooling: Pooling,
    /// The last hidden state, or the sum of all.
    row: Vec<f64>,
}

impl Pool {
    pub fn new(pooling: Pooling) -> Self {
        Self { pooling, row: Vec::new() }
    }

    /// Adds the hidden state of the next token.
    pub(crate) fn add(&mut self, state: &[f32]) {
        let state = state.iter().copied().map(f64::from);
        match self.pooling {
            Pooling::Mean if !self.row.is_empty() => self.row.iter_mut().zip(state).for_each(|(sum, x)| *sum += x),
            Pooling::Last | Pooling::Mean => {
                self.row.clear();
                self.row.extend(state);
            }
        }
    }

    /// Returns the first `dimensions` elements, scaled to the Euclidean norm 1, as models are trained for (Kusupati et
    /// al. 2022, Matryoshka Representation Learning). A vector of zeros stays zero. Without tokens the result is empty.
    pub fn normalized(&self, dimensions: usize) -> Vec<f32> {
        let row = self.row.get(..dimensions).unwrap_or(&self.row);
        // The count of tokens cancels out.
        let norm = libm::sqrt(row.iter().map(|x| x * x).sum());
        let scale = if norm > 0.0 { 1.0 / norm } else { 0.0 };
        row.iter().map(|x| (x * scale) as f32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_pooled_and_scaled() {
        let pooled = |pooling, dimensions| {
            let mut pool = Pool::new(pooling);
            [[1.0, 0.0, 2.0], [5.0, 8.0, 0.0]].iter().for_each(|row| pool.add(row));
            pool.normalized(dimensions)
        };
        assert_eq!(pooled(Pooling::Mean, 2), [0.6, 0.8]);
        let root = 89f64.sqrt();
        assert_eq!(pooled(Pooling::Last, 3), [5.0 / root, 8.0 / root, 0.0].map(|x| x as f32));
        assert!(Pool::new(Pooling::Mean).normalized(3).is_empty());
        let mut zeros = Pool::new(Pooling::Last);
        zeros.add(&[0.0, 0.0]);
        assert_eq!(zeros.normalized(9), [0.0, 0.0]);
    }
}
