package command

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"time"

	"k8s.io/klog/v2"

	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/inspect"
)

// bundleSignals returns a channel that receives SIGUSR1, on systems that have it: kill -USR1 asks for a bundle when no
// page can be reached. end stops that.
func bundleSignals() (signals chan os.Signal, end func()) {
	signals = make(chan os.Signal, 1)
	if bundleSignal != nil {
		signal.Notify(signals, bundleSignal)
	}
	return signals, func() { signal.Stop(signals) }
}

// saveBundles saves a bundle for each signal. The function that it returns ends that.
func saveBundles(name string, m *reconcile.Manager, signals <-chan os.Signal) (end func()) {
	if signals == nil {
		return func() {}
	}
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			case <-signals:
				saveBundle(name, m)
			}
		}
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// bundleTime is how long the writing of a bundle may take.
const bundleTime = time.Minute

// saveBundle writes a bundle to a file in the folder for temporary files, and logs its name.
func saveBundle(name string, m *reconcile.Manager) {
	ctx, cancel := context.WithTimeout(context.Background(), bundleTime)
	defer cancel()
	file, err := os.CreateTemp("", name+"-*.jsonl.gz") // readable by the owner only
	if err == nil {
		err = inspect.WriteBundle(ctx, file, m)
		failed := file.Close()
		if err == nil {
			err = failed
		}
	}
	if err != nil {
		klog.ErrorS(err, "A bundle could not be written")
		return
	}
	klog.InfoS("A bundle has been written", "file", file.Name(), "toSeeIt", fmt.Sprint("why serve ", file.Name()))
}
