package supervisor

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// awaitStopped waits until every thread of the process has stopped. SIGSTOP has been sent when this is called, but for
// a moment a busy server answers on.
func (p *process) awaitStopped(ctx context.Context) error {
	for p.running() {
		var info unix.Siginfo
		// WNOWAIT leaves what there is to know to the reaper, and to the next call.
		err := unix.Waitid(unix.P_PID, p.cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err == nil && info.Signo != 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s (pid %d) was told to stop and has not: %w", p.spec.Name, p.cmd.Process.Pid, ctx.Err())
		case <-p.ended:
		case <-time.After(time.Millisecond):
		}
	}
	return fmt.Errorf("%s ended before it had stopped: %s", p.spec.Name, p.status)
}
