package org.pytorch.executorch;

import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.spi.AbstractSelectableChannel;
import java.nio.channels.spi.AbstractSelector;
import java.util.Collections;
import java.util.Set;

/**
 * Ends a call when its thread is interrupted. Java tells nobody of an interrupt but selectors and channels in which the thread waits,
 * so that this is a selector in which it seems to wait.
 */
final class Interruption extends AbstractSelector {
  private final Frame frame;

  /** Held while nothing else of Java's is locked: {@link #begin} and {@link #end} take locks of a thread, and call {@link #wakeup} in them. */
  private final Object callerLock = new Object();

  /** The thread whose call runs. */
  private Thread caller;

  Interruption(Frame frame) {
    super(null);
    this.frame = frame;
  }

  void beginCall() {
    setCaller(Thread.currentThread());
    begin();
  }

  void endCall() {
    end();
    setCaller(null);
  }

  private void setCaller(Thread thread) {
    synchronized (callerLock) {
      caller = thread;
    }
  }

  /** Ends the call. From Java 21 on this may come after the end of the call that it was meant for, and in one of another thread. */
  @Override
  public Selector wakeup() {
    synchronized (callerLock) {
      if (caller != null && caller.isInterrupted()) {
        frame.interrupt();
      }
    }
    return this;
  }

  @Override
  protected void implCloseSelector() {}

  @Override
  protected SelectionKey register(AbstractSelectableChannel channel, int operations, Object attachment) {
    throw new UnsupportedOperationException();
  }

  @Override
  public Set<SelectionKey> keys() {
    return Collections.emptySet();
  }

  @Override
  public Set<SelectionKey> selectedKeys() {
    return Collections.emptySet();
  }

  @Override
  public int selectNow() {
    return 0;
  }

  @Override
  public int select(long timeout) {
    return 0;
  }

  @Override
  public int select() {
    return 0;
  }
}
