package informer

import (
	"context"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// million is a server that makes up its objects: small ones, in pages, so that none but the informer's is held.
type million struct{ objects int }

func (m million) List(_ context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	from, _ := strconv.Atoi(opts.Continue)
	to := min(from+int(opts.Limit), m.objects)
	page := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(2 * m.objects)},
		Items: make([]metav1.PartialObjectMetadata, to-from)}
	if to < m.objects {
		page.Continue = strconv.Itoa(to)
	}
	for i := range page.Items {
		name := "object-" + strconv.Itoa(from+i)
		page.Items[i].ObjectMeta = metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name),
			ResourceVersion: strconv.Itoa(from + i + 1)}
	}
	return page, nil
}

func (m million) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewRaceFreeFake(), nil
}

// Three handlers, one of which never returns. For each object the heap holds the object itself, its row in
// the store, and the event that waits for the stuck handler: 515 bytes were measured, on amd64, and a quarter more is
// the bound.
func TestAMillionObjectsAndAStuckHandler(t *testing.T) {
	objects := 1_000_000
	if raceEnabled {
		objects = 100_000 // the detector multiplies time and memory
	}
	const perObject, fixed = 515 * 5 / 4, 32 << 20
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	inf, err := New[*metav1.PartialObjectMetadata](million{objects},
		Options[*metav1.PartialObjectMetadata]{DisableWatchList: true, StopGrace: time.Second})
	require.NoError(t, err)
	stuck := make(chan struct{})
	defer close(stuck)
	var synced []*Registration
	for name, h := range map[string]Handler[*metav1.PartialObjectMetadata]{
		"quick": func(Event[*metav1.PartialObjectMetadata]) {},
		"other": func(Event[*metav1.PartialObjectMetadata]) {},
		"stuck": func(Event[*metav1.PartialObjectMetadata]) { <-stuck },
	} {
		added, err := inf.AddHandler(h, HandlerOptions{Name: name})
		require.NoError(t, err)
		if name != "stuck" {
			synced = append(synced, added)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- inf.Run(ctx) }()
	for _, r := range synced {
		<-r.Synced() // the two others are done although one is stuck
	}
	require.Equal(t, objects, inf.Len())
	used := heap() - before
	t.Logf("%d objects: %d MB, %d bytes for each", objects, used>>20, used/objects)
	require.Less(t, used, objects*perObject+fixed)

	began := time.Now()
	cancel()
	err = <-done
	require.ErrorIs(t, err, ErrStuck)
	require.ErrorContains(t, err, "handler stuck")
	require.Less(t, time.Since(began), time.Minute, "StopGrace, and not for as long as the handler takes")
}
