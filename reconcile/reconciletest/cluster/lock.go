package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// lock takes a lock that all processes of this machine share. The system frees it when its holder dies.
func lock(ctx context.Context, log io.Writer, path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for told := false; ; {
		locked, err := tryLock(file)
		if err != nil {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if locked {
			return func() { file.Close() }, nil
		}
		if !told {
			fmt.Fprintf(log, "testcluster: another process is building; waiting for it\n")
			told = true
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("wait for %s, which another process holds while it builds: %w", path, ctx.Err())
		case <-time.After(200 * time.Millisecond):
		}
	}
}
