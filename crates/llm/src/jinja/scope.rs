//! Names and their values: a scope sees those around it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::value::Value;

#[derive(Debug, Default)]
pub(super) struct Scope {
    names: RefCell<FxHashMap<Arc<str>, Value>>,
    outer: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn inside(outer: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self { names: RefCell::default(), outer: Some(outer.clone()) })
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some(value) = scope.names.borrow().get(name) {
                return Some(value.clone());
            }
            scope = scope.outer.as_deref()?;
        }
    }

    pub(super) fn set(&self, name: &Arc<str>, value: Value) {
        self.names.borrow_mut().insert(name.clone(), value);
    }

    /// Forgets all names. This breaks cycles of macros and namespaces that refer to the scope.
    pub(super) fn clear(&self) {
        let names = std::mem::take(&mut *self.names.borrow_mut());
        drop(names);
    }
}
