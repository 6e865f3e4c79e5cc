package org.jetbrains.annotations;

import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** Read by Kotlin's compiler. The library is compiled with it and does not contain it. */
@Retention(RetentionPolicy.CLASS)
public @interface Nullable {}
