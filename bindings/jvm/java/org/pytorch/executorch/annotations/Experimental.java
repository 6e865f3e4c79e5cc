package org.pytorch.executorch.annotations;

import java.lang.annotation.Documented;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;

/** Marks an interface that ExecuTorch may change between releases. */
@Documented
@Retention(RetentionPolicy.CLASS)
public @interface Experimental {}
