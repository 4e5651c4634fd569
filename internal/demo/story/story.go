// Package story is the demo of the repository: a Deployment and what happens to it, told act by act, with everything
// checked that is said. It takes place on a [Stage]: package memory has the one of "make demo", package real those of
// "make demo REAL=1" and "make kind-demo".
package story

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Main runs the demo as a program, until it ends or a signal ends it, and returns the exit code.
func Main(say *Narrator, s Stage, keep bool) int {
	// SIGPIPE comes when the reader of the output has gone, as in "make demo | head".
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGPIPE)
	defer stop()
	if err := Run(ctx, say, s, keep); err != nil {
		fmt.Printf("\ndemo: FAILED: %v\n", err)
		return 1
	}
	fmt.Println("\ndemo: ok")
	return 0
}

// demo is the state that one act leaves to the next.
type demo struct {
	narrator  *Narrator
	stage     Stage
	client    *Client
	namespace string
	seen      extremes
	load      int // of all pods together, in thousandths of a CPU; 0: there are no metrics
}

// Run runs the demo. With keep it then stays until ctx ends.
func Run(ctx context.Context, say *Narrator, s Stage, keep bool) (err error) {
	began := time.Now()
	d := &demo{narrator: say, stage: s}
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errors.New("interrupted")
		}
		err = errors.Join(err, s.Close())
	}()
	for i, act := range d.acts() {
		say.act(i+1, act.title)
		result, err := act.do(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.ShowLogs()
			}
			return fmt.Errorf("act %d: %w", i+1, err)
		}
		say.result(result)
	}
	say.Text("All acts took %s.", Seconds(time.Since(began)))
	if keep {
		return d.stay(ctx)
	}
	return nil
}

// stay keeps everything running until ctx ends.
func (d *demo) stay(ctx context.Context) error {
	d.narrator.Text("Starting the controllers again ...")
	started, err := d.stage.Start(ctx, d.client)
	if err != nil {
		return err
	}
	d.narrator.result(started)
	if err := d.scale(ctx, 3); err != nil {
		return err
	}
	d.narrator.Text("%s", d.stage.Hint(d.namespace))
	<-ctx.Done()
	return nil
}
