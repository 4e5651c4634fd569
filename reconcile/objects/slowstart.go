package objects

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/internal/lifecycle"
)

// SlowStart makes n calls, numbered from 0, in batches of 1, 2, 4, 8 and so on. The calls of a batch run in parallel.
// The next batch starts when all calls of one have returned, and only if all have succeeded. If one creation fails,
// most others would fail for the same reason, such as a quota or a webhook: a controller that wants to create 500
// objects learns that from one request.
//
//	made, err := objects.SlowStart(ctx, missing, func(int) error {
//		_, err := pods.Create(ctx, pod, metav1.CreateOptions{})
//		return err
//	})
//
// It returns how many calls have succeeded and, if some of the last batch failed, the error of the one with the lowest
// number, as it is. A call that timed out counts as failed, although its request may have been served. When ctx has
// ended no further batch starts, and the error wraps the cause; calls under way have to observe ctx themselves. A call
// that panics or ends its goroutine has failed, and is logged with its stack.
func SlowStart(ctx context.Context, n int, call func(i int) error) (made int, err error) {
	switch {
	case call == nil:
		return 0, errors.New("SlowStart: the function is nil")
	case n < 0:
		return 0, fmt.Errorf("SlowStart: the number of calls is %d", n)
	}
	next := 0
	for size := 1; next < n; size *= 2 {
		if ctx.Err() != nil {
			return made, fmt.Errorf("stopped after %d of %d calls: %w", made, n, context.Cause(ctx))
		}
		failures := make([]error, min(size, n-next)) // of each call of the batch; each has its own place
		var batch sync.WaitGroup
		for i := range failures {
			batch.Go(func() { survive(ctx, &failures[i], func() error { return call(next + i) }) })
		}
		batch.Wait()
		for _, failure := range failures {
			if failure == nil {
				made++
			} else if err == nil {
				err = failure
			}
		}
		if err != nil {
			return made, err
		}
		next += len(failures)
	}
	return made, nil
}

// survive makes a call whose panic must not end the process, and whose Goexit must not count as success.
func survive(ctx context.Context, err *error, call func() error) {
	lifecycle.Guard(func() { *err = call() }, func(p *lifecycle.PanicError) {
		*err = p
		klog.FromContext(ctx).Error(p, "A call panicked", "stack", string(p.Stack))
	})
}
