package reconcile_test

import (
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile"
	"github.com/thermostat-go/thermostat/reconcile/objects"
	"github.com/thermostat-go/thermostat/workqueue"
)

// A controller that looks at a CronJob when its spec or its labels have changed, or when it has run once more. It
// serves the namespaces in turn, and those of the system first.
func ExampleCondition() {
	cronJobs, err := informer.NewResource[*batchv1.CronJob](&rest.Config{Host: "https://server"},
		batchv1.SchemeGroupVersion.WithResource("cronjobs"), informer.ResourceOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cache, err := informer.New(cronJobs, informer.Options[*batchv1.CronJob]{})
	if err != nil {
		fmt.Println(err)
		return
	}
	look := func(context.Context, reconcile.Key) (reconcile.Result, error) { return reconcile.Result{}, nil }
	c, err := reconcile.NewController("looker", reconcile.Func(look), reconcile.Options{
		Group: func(key reconcile.Key) string { return key.Namespace },
		Priority: func(key reconcile.Key) workqueue.Priority {
			if key.Namespace == "kube-system" {
				return 10
			}
			return 0
		},
		ResyncEvery: 10 * time.Hour,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	hasRun := func(old, new *batchv1.CronJob) bool {
		return !old.Status.LastScheduleTime.Equal(new.Status.LastScheduleTime)
	}
	reconcile.For(c, cache, reconcile.GenerationChanged, reconcile.LabelsChanged, hasRun)

	before, after := &batchv1.CronJob{}, &batchv1.CronJob{}
	before.Generation, after.Generation = 1, 1
	after.Annotations = map[string]string{"example.com/note": "nobody acts on this"}
	fmt.Println("an annotation:", reconcile.GenerationChanged(before, after) || hasRun(before, after))
	after.Generation = 2
	fmt.Println("the spec:", reconcile.GenerationChanged(before, after))
	// Output:
	// an annotation: false
	// the spec: true
}

// An object that cannot be decoded is reported, and let go when it is being deleted. A client of metadata never has to
// decode the rest.
func ExampleOptions_invalid() {
	backups := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "backups"}
	metadata, err := informer.NewResource[*metav1.PartialObjectMetadata](&rest.Config{Host: "https://server"}, backups,
		informer.ResourceOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	cleanUp := func(context.Context, reconcile.Key) (bool, error) { return true, nil } // what the name alone allows
	invalid := func(ctx context.Context, key reconcile.Key, why *informer.InvalidError) (reconcile.Result, error) {
		if why.Object.DeletionTimestamp == nil {
			return reconcile.Result{}, reconcile.Terminal(why) // the log names the field; an Event could, too
		}
		_, _, err := objects.Finalize(ctx, metadata.In(key.Namespace), why.Object, "example.com/backups",
			func(ctx context.Context) (bool, error) { return cleanUp(ctx, key) })
		return reconcile.Result{}, err
	}
	look := func(context.Context, reconcile.Key) (reconcile.Result, error) { return reconcile.Result{}, nil }
	c, err := reconcile.NewController("backups", reconcile.Func(look), reconcile.Options{Invalid: invalid})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Name())
	// Output: backups
}
