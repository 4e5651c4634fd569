package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/thermostat-go/thermostat/reconcile/reconciletest/cluster"
)

// A small cluster: 5,000 pods of 4 kB in JSON, in 250 ReplicaSets, each with a Service, an account, and some
// ConfigMaps and Secrets.
const (
	managedSets = 250
	managedPods = 20 * managedSets
	managedData = 1000 // bytes of each ConfigMap and Secret
)

// fill makes the objects, and waits until the controllers and the node have nothing left to do.
func fill(b *testing.B, c *cluster.Cluster) {
	ctx, client := b.Context(), c.Client()
	const spaces = 25
	for i := range spaces {
		_, err := client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("team-%02d", i)}}, metav1.CreateOptions{})
		must(b, err)
	}
	each := make(chan int)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			for i := range each {
				if err := fillOne(ctx, client, fmt.Sprintf("team-%02d", i%spaces), i); err != nil {
					b.Error(err)
				}
			}
		})
	}
	for i := range managedSets {
		each <- i
	}
	close(each)
	workers.Wait()
	for began := time.Now(); !settled(b, client); time.Sleep(time.Second) {
		if time.Since(began) > 4*time.Minute {
			b.Fatal("the pods do not become ready")
		}
	}
}

// settled reports whether all pods run, and all are in EndpointSlices.
func settled(b *testing.B, client kubernetes.Interface) bool {
	sets, err := client.AppsV1().ReplicaSets("").List(b.Context(), metav1.ListOptions{})
	must(b, err)
	ready := int32(0)
	for _, set := range sets.Items {
		ready += set.Status.AvailableReplicas
	}
	slices, err := client.DiscoveryV1().EndpointSlices("").List(b.Context(), metav1.ListOptions{})
	must(b, err)
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready++
			}
		}
	}
	return ready >= 2*managedPods
}

// fillOne makes a ReplicaSet and what belongs to it.
func fillOne(ctx context.Context, client kubernetes.Interface, namespace string, i int) error {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/name": fmt.Sprintf("checkout-%03d", i), "app.kubernetes.io/part-of": "shop"}}
	}
	app := meta(fmt.Sprintf("checkout-%03d", i))
	text := strings.Repeat(fmt.Sprintf("%03d=value\n", i), managedData/10)
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: app},
		metav1.CreateOptions{})
	if err != nil {
		return err
	}
	for n := range 4 {
		_, err = client.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{
			ObjectMeta: meta(fmt.Sprintf("%s-%d", app.Name, n)), Data: map[string]string{"settings": text},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Secrets(namespace).Create(ctx, &corev1.Secret{
			ObjectMeta: meta(fmt.Sprintf("%s-%d", app.Name, n)), Data: map[string][]byte{"password": []byte(text)},
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	_, err = client.CoreV1().Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: app,
		Spec: corev1.ServiceSpec{Selector: app.Labels, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	replicas := int32(managedPods / managedSets)
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: app.Labels}, Spec: realisticPod(i, 1).Spec}
	template.Annotations = map[string]string{"checksum/config": strings.Repeat(fmt.Sprintf("%08x", i), 8),
		"prometheus.io/scrape": "true", "prometheus.io/port": "9090"}
	template.Spec.NodeName, template.Spec.ServiceAccountName = "", app.Name
	_, err = client.AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{ObjectMeta: app,
		Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: app.Labels},
			Template: template}}, metav1.CreateOptions{})
	return err
}
