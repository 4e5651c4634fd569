package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// lastWord undoes what other clients set in the fields that the operator sets.
var lastWord = metav1.ApplyOptions{FieldManager: name, Force: true}

// act does one thing.
func (r *call) act(ctx context.Context, seen observed, a plan.Action) (err error) {
	namespace := r.cluster.Namespace
	key := informer.Key{Namespace: namespace, Name: a.Member}
	pod, _ := r.pods.Cache.Get(key)
	claim, _ := r.claims.Cache.Get(key)
	word, _ := r.words.Cache.Get(key)
	const background = metav1.DeletePropagationBackground
	switch a.Do {
	case plan.CreateClaim:
		_, err = objects.CreateOwned(ctx, r.owner, r.claims.In(namespace), r.claim(a.Member))
	case plan.CreatePod:
		pod := r.pod(a.Member, a.Version)
		if begins(seen, a) && r.cluster.Spec.Restore != nil {
			from := r.source()
			if from.backup == nil {
				return nil // the condition Restored says why
			}
			r.withRestore(pod, from.backup)
		}
		_, err = objects.CreateOwned(ctx, r.owner, r.pods.In(namespace), pod)
	case plan.DeletePod, plan.RenewTrust:
		_, err = objects.DeleteOwned(ctx, r.owner, r.pods.In(namespace), pod, background)
	case plan.DeleteClaim:
		_, err = objects.DeleteOwned(ctx, r.owner, r.claims.In(namespace), claim, background)
	case plan.DeleteWord:
		_, err = objects.DeleteOwned(ctx, r.owner, r.words.In(namespace), word, background)
	case plan.Form:
		err = r.tell(ctx, word, a, "new", a.Member+"="+a.URL)
	case plan.TellBegin:
		err = r.tell(ctx, word, a, "existing", initialCluster(seen, a.Member))
	case plan.TellRestart:
		err = r.tell(ctx, word, a, "existing", noCluster)
	case plan.ChooseSurvivor: // the status has it
	case plan.ForceNewCluster:
		err = r.forceNewCluster(ctx, seen, a)
	case plan.Resume:
		_, err = objects.DeleteOwned(ctx, r.owner, r.pods.In(namespace), pod, background)
	case plan.SetImage, plan.RollBack:
		err = r.setImage(ctx, word, a)
	case plan.MoveLeader, plan.Compact, plan.Defragment:
		of := a.Member
		for _, m := range seen.Members {
			if a.Do == plan.MoveLeader && m.Leader {
				of = m.Name
			}
		}
		if err = r.etcd.Do(ctx, []string{seen.urls[of]}, a); err == nil && a.Do == plan.Compact {
			_, err = objects.UpdateStatus(ctx, r.clusters.In(namespace), r.cluster, func(c *v1.EtcdCluster) error {
				c.Status.CompactedRevision = seen.Revision
				return nil
			})
		}
	default:
		err = r.etcd.Do(ctx, slices.Sorted(maps.Values(seen.urls)), a)
	}
	return err
}

// noCluster is the initial cluster of a member that has a disk. Etcd does not look at it then. If the disk is empty,
// etcd ends at once, since it is not in this cluster itself.
const noCluster = "the-disk-is-lost=http://127.0.0.1:1"

// initialCluster is that of a member that joins: etcd compares it with the list.
func initialCluster(seen observed, joining string) string {
	var parts []string
	for _, l := range seen.list {
		name := l.Name
		for _, m := range seen.Members {
			if m.ID == l.ID && m.Name == joining {
				name = joining
			}
		}
		if name == "" {
			name = fmt.Sprintf("%x", l.ID)
		}
		parts = append(parts, name+"="+l.PeerURL)
	}
	return strings.Join(parts, ",")
}

// tell writes a member's word.
func (r *call) tell(ctx context.Context, seen *corev1.ConfigMap, a plan.Action, state, cluster string) error {
	mode := plan.TellBegin
	if a.Do == plan.TellRestart {
		mode = plan.TellRestart
	}
	_, err := objects.ApplyOwned(ctx, r.owner, r.words.In(r.cluster.Namespace), seen, r.word(a.Member, mode, a.Version,
		map[string]string{"ETCD_INITIAL_CLUSTER": cluster, "ETCD_INITIAL_CLUSTER_STATE": state}), lastWord, nil)
	return err
}

// setImage changes the word first: if the pod goes in between, it comes back with the new version.
func (r *call) setImage(ctx context.Context, word *corev1.ConfigMap, a plan.Action) error {
	if word == nil {
		return fmt.Errorf("%s has no ConfigMap", a.Member)
	}
	mode := plan.Verb(word.Annotations[wordNote])
	_, err := objects.ApplyOwned(ctx, r.owner, r.words.In(r.cluster.Namespace), word,
		r.word(a.Member, mode, a.Version, word.Data), lastWord, nil)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"containers": []map[string]any{
		{"name": container, "image": r.image(a.Version)}}}})
	if err != nil {
		return err
	}
	_, err = r.pods.In(r.cluster.Namespace).Patch(ctx, a.Member, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{FieldManager: name})
	return err
}
