pub const PATHS: &[(&str, &str)] = &[];
