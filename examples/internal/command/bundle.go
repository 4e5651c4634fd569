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

// bundleOnSignal saves a bundle each time that the process gets SIGUSR1, on systems that have it: kill -USR1 works when
// no page can be reached. The function that it returns ends that.
func bundleOnSignal(name string, m *reconcile.Manager) (end func()) {
	if bundleSignal == nil {
		return func() {}
	}
	signals, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(signals, bundleSignal)
	go func() {
		defer close(ended)
		for range signals {
			saveBundle(name, m)
		}
	}()
	return func() {
		signal.Stop(signals)
		close(signals)
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
		if failed := file.Close(); err == nil {
			err = failed
		}
	}
	if err != nil {
		klog.ErrorS(err, "A bundle could not be written")
		return
	}
	klog.InfoS("A bundle has been written", "file", file.Name(), "toSeeIt", fmt.Sprint("why serve ", file.Name()))
}
