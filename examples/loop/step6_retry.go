package main

import (
	"context"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step 6: a retry. A key that fails comes back after 1 s, then 2 s, and so on up to 256 s.
func step6(ctx context.Context, c cluster) error {
	var written, failures perKey // failures: how many looks at a key have failed in a row
	work(ctx, c, func(q *queue, cache clusterCache, key string) {
		if !cache.pods.reached(written.get(key)) {
			return
		}
		look, failed := reconcile, failures.get(key)
		if failed > 0 {
			look = reconcileAfterFailure
		}
		version, err := look(ctx, c, cache, key)
		if version > 0 {
			written.set(key, version)
		}
		if err == nil {
			failures.set(key, 0)
			return
		}
		failures.set(key, failed+1)
		pause := time.Second << min(failed, 8)
		log.Printf("%s: %v; again in %s", key, err, pause)
		time.AfterFunc(pause, func() { q.add(key) })
	})
	return nil
}

// reconcileAfterFailure asks the server for the pods, and not the cache: a request that seems to have failed may have
// been carried out, and only its answer lost. Then no version says when the cache will show it.
func reconcileAfterFailure(ctx context.Context, c cluster, cache clusterCache, key string) (written uint64, err error) {
	want, err := cache.wantedPods(key)
	if err != nil {
		return 0, err
	}
	list, err := c.pods.List(ctx, metav1.ListOptions{LabelSelector: label + "=" + key})
	if err != nil {
		return 0, err
	}
	var have []*corev1.Pod
	for i := range list.Items {
		have = append(have, &list.Items[i])
		written = max(written, parse(list.Items[i].ResourceVersion))
	}
	version, err := c.adjust(ctx, key, want, have)
	return max(written, version), err
}
