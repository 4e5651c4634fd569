package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/thermostat-go/thermostat/examples/cronbackup/api/v1"
	"github.com/thermostat-go/thermostat/informer"
)

const manyBackups = 200

// BenchmarkTwoHundred creates 200 CronBackups at once and measures how long it takes until the status of each names its
// CronJob and says that it is Ready. The operators take turns on one control plane.
//
//	go test -run '^$' -bench TwoHundred -benchtime 5x ./cronbackup
func BenchmarkTwoHundred(b *testing.B) {
	c, backups := withDefinition(b)
	binaries := map[string]string{}
	for _, o := range operators {
		binaries[o.name] = o.build(b)
	}
	took := map[string][]time.Duration{}
	for range b.N {
		for _, o := range operators {
			stop := o.start(b, c, binaries[o.name])
			namespace := c.Namespace(b)
			warmUp(b, backups.In(namespace))
			took[o.name] = append(took[o.name], createMany(b, backups.In(namespace)))
			deleteAll(b, backups.In(namespace))
			stop()
		}
	}
	for _, name := range slices.Sorted(maps.Keys(took)) {
		slices.Sort(took[name])
		b.Logf("%-18s %v", name, took[name])
		b.ReportMetric(took[name][len(took[name])/2].Seconds(), name+"-sec")
	}
}

// warmUp waits until the operator leads and works.
func warmUp(b *testing.B, backups *informer.Resource[*v1.CronBackup]) {
	_, err := backups.Create(b.Context(), backup("warm-up"), metav1.CreateOptions{})
	require.NoError(b, err)
	eventually(b, "the first CronBackup", func() bool {
		o, err := backups.Get(b.Context(), "warm-up", metav1.GetOptions{})
		require.NoError(b, err)
		return settled(o)
	})
}

func settled(o *v1.CronBackup) bool {
	return o.Status.CronJobName != "" && o.Status.ObservedGeneration == o.Generation && len(o.Status.Conditions) == 1 &&
		o.Status.Conditions[0].Status == metav1.ConditionTrue
}

func createMany(b *testing.B, backups *informer.Resource[*v1.CronBackup]) time.Duration {
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	w, err := backups.Watch(ctx, metav1.ListOptions{})
	require.NoError(b, err)
	defer w.Stop()
	began := time.Now()
	var creators sync.WaitGroup
	for creator := range 10 {
		creators.Go(func() {
			for i := creator; i < manyBackups; i += 10 {
				_, err := backups.Create(ctx, backup(fmt.Sprintf("backup-%03d", i)), metav1.CreateOptions{})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	defer creators.Wait()
	ready := map[string]bool{}
	for len(ready) < manyBackups {
		e, open := <-w.ResultChan()
		if !open {
			b.Fatalf("the watch has ended with %d of %d ready", len(ready), manyBackups)
		}
		if o, ok := e.Object.(*v1.CronBackup); ok && e.Type != watch.Deleted && o.Name != "warm-up" && settled(o) {
			ready[o.Name] = true
		}
	}
	return time.Since(began)
}

// deleteAll leaves nothing for the other operator. Clean-ups are not what is measured here.
func deleteAll(b *testing.B, backups *informer.Resource[*v1.CronBackup]) {
	list, err := backups.List(b.Context(), metav1.ListOptions{})
	require.NoError(b, err)
	skip := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, v1.SkipCleanup)
	for _, o := range list.Items {
		_, err := backups.Patch(b.Context(), o.Name, "application/merge-patch+json", skip, metav1.PatchOptions{})
		require.NoError(b, err)
	}
	require.NoError(b, backups.DeleteCollection(b.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	eventually(b, "all are gone", func() bool {
		list, err := backups.List(b.Context(), metav1.ListOptions{})
		require.NoError(b, err)
		return len(list.Items) == 0
	})
}
