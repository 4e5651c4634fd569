package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/thermostat-go/thermostat/informer"
)

// backupVersion and backups are of a custom resource, which a server sends in JSON only.
var (
	backupVersion = schema.GroupVersion{Group: "backups.example.com", Version: "v1"}
	backups       = backupVersion.WithResource("cronbackups")
)

// CronBackup is a custom resource: 1.3 KB in JSON.
type CronBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              backupSpec   `json:"spec,omitempty"`
	Status            backupStatus `json:"status,omitempty"`
}

type backupSpec struct {
	Schedule       string            `json:"schedule"`
	TargetDatabase string            `json:"targetDatabase"`
	RetentionDays  *int32            `json:"retentionDays,omitempty"`
	Suspend        bool              `json:"suspend,omitempty"`
	Parameters     map[string]string `json:"parameters,omitempty"`
}

type backupStatus struct {
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
	CronJob            string             `json:"cronJob,omitempty"`
	LastScheduleTime   *metav1.Time       `json:"lastScheduleTime,omitempty"`
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
}

func (o *CronBackup) DeepCopyObject() runtime.Object {
	c := *o
	o.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Parameters = make(map[string]string, len(o.Spec.Parameters))
	for k, v := range o.Spec.Parameters {
		c.Spec.Parameters[k] = v
	}
	c.Status.LastScheduleTime = o.Status.LastScheduleTime.DeepCopy()
	c.Status.Conditions = append([]metav1.Condition(nil), o.Status.Conditions...)
	return &c
}

// CronBackupList is what generated clients decode a list into; ours needs no such type.
type CronBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CronBackup `json:"items"`
}

func (l *CronBackupList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = make([]CronBackup, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].DeepCopyObject().(*CronBackup)
	}
	return &c
}

func realisticBackup(i, version int) *CronBackup {
	p, days := smallPod(i, version), int32(7)
	created := metav1.NewTime(time.Date(2026, 11, 1, 12, 0, i%3600, 0, time.UTC))
	o := &CronBackup{
		TypeMeta:   metav1.TypeMeta{APIVersion: backupVersion.String(), Kind: "CronBackup"},
		ObjectMeta: p.ObjectMeta,
		Spec: backupSpec{
			Schedule: fmt.Sprintf("%d %d * * *", i%60, i/60%24), TargetDatabase: fmt.Sprintf("orders-%06d", i),
			RetentionDays: &days,
			Parameters:    map[string]string{"format": "custom", "compression": "zstd", "bucket": "s3://backups-eu"},
		},
		Status: backupStatus{
			ObservedGeneration: 1, CronJob: fmt.Sprintf("backup-orders-%06d", i), LastScheduleTime: &created,
			Conditions: []metav1.Condition{{
				Type: "Ready", Status: metav1.ConditionTrue, Reason: "Scheduled", ObservedGeneration: 1,
				Message: "The CronJob has the schedule of the CronBackup", LastTransitionTime: created,
			}},
		},
	}
	o.CreationTimestamp, o.Generation = created, 1
	o.Labels = map[string]string{"app.kubernetes.io/name": "orders", "app.kubernetes.io/managed-by": "Helm"}
	o.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "helm", Operation: metav1.ManagedFieldsOperationApply, APIVersion: backupVersion.String(),
		Time: &created, FieldsType: "FieldsV1", FieldsV1: fields(`{"f:metadata":{"f:labels":{` +
			`"f:app.kubernetes.io/managed-by":{},"f:app.kubernetes.io/name":{}}},"f:spec":{"f:parameters":{` +
			`"f:bucket":{},"f:compression":{},"f:format":{}},"f:retentionDays":{},` +
			`"f:schedule":{},"f:targetDatabase":{}}}`),
	}}
	return o
}

// BenchmarkCustom lists 150,000 custom resources over HTTP, in JSON: into a Go type of one's own, with what a code
// generator would write on the peer's side, and into unstructured objects, with client-go's dynamic informer.
func BenchmarkCustom(b *testing.B) {
	b.Run("typed", func(b *testing.B) {
		b.Run("thermostat", func(b *testing.B) { customs(b, ourCustoms[*CronBackup]) })
		b.Run("client-go", func(b *testing.B) { customs(b, peerTyped) })
	})
	b.Run("unstructured", func(b *testing.B) {
		b.Run("thermostat", func(b *testing.B) { customs(b, ourCustoms[*unstructured.Unstructured]) })
		b.Run("client-go", func(b *testing.B) { customs(b, peerUnstructured) })
	})
}

func customs(b *testing.B, sync func(*testing.B, *rest.Config) any) {
	measureSync(b, serverOptions{Pods: manyPods, Realistic: true, JSON: true, Custom: true}, sync)
}

func ourCustoms[T informer.Object](b *testing.B, c *rest.Config) any {
	client, err := informer.NewResource[T](c, backups, informer.ResourceOptions{})
	must(b, err)
	inf, err := informer.New[T](client, informer.Options[T]{})
	must(b, err)
	background(b, inf.Run)
	must(b, inf.WaitForSync(b.Context()))
	return inf
}

func peerTyped(b *testing.B, c *rest.Config) any {
	scheme := runtime.NewScheme()
	scheme.AddKnownTypes(backupVersion, &CronBackup{}, &CronBackupList{})
	metav1.AddToGroupVersion(scheme, backupVersion)
	c = rest.CopyConfig(c)
	c.GroupVersion, c.APIPath = &backupVersion, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	must(b, err)
	generated := gentype.NewClientWithList[*CronBackup, *CronBackupList](backups.Resource, client,
		runtime.NewParameterCodec(scheme), metav1.NamespaceAll,
		func() *CronBackup { return &CronBackup{} }, func() *CronBackupList { return &CronBackupList{} })
	inf := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return generated.List(ctx, o)
		},
		WatchFuncWithContext: generated.Watch,
	}, &CronBackup{}, 0, cache.Indexers{})
	return peerSync(b, inf)
}

func peerUnstructured(b *testing.B, c *rest.Config) any {
	client, err := dynamic.NewForConfig(c)
	must(b, err)
	return peerSync(b, dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(backups).Informer())
}

// peerSync runs an informer of client-go's until the end of the benchmark, and returns it once it has synced.
func peerSync(b *testing.B, inf cache.SharedIndexInformer) any {
	background(b, func(ctx context.Context) error {
		inf.RunWithContext(ctx)
		return nil
	})
	for !inf.HasSynced() {
		time.Sleep(time.Millisecond)
	}
	return inf
}
