package check

import (
	"context"
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	xpv1 "github.com/crossplane/crossplane-runtime/v2/apis/common/v1"
	xpv2 "github.com/crossplane/crossplane-runtime/v2/apis/common/v2"
	"github.com/crossplane/crossplane-runtime/v2/pkg/meta"
	"github.com/crossplane/crossplane-runtime/v2/pkg/reconciler/managed"
	"github.com/crossplane/crossplane-runtime/v2/pkg/resource"
)

// Bucket is a resource of a provider: one record outside.
type Bucket struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   BucketSpec   `json:"spec"`
	Status BucketStatus `json:"status,omitempty"`
}

type BucketSpec struct {
	xpv2.ManagedResourceSpec `json:",inline"`
	ForProvider              BucketParameters `json:"forProvider"`
}

type BucketStatus struct {
	xpv1.ResourceStatus `json:",inline"`
	AtProvider          BucketParameters `json:"atProvider,omitempty"`
}

// BucketParameters are what the record has.
type BucketParameters struct {
	Size int `json:"size,omitempty"`
}

type BucketList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Bucket `json:"items"`
}

var (
	version = schema.GroupVersion{Group: "example.com", Version: "v1"}
	kind    = version.WithKind("Bucket")

	_ resource.ModernManaged = &Bucket{}
)

// addToScheme adds the resource to a scheme.
func addToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(version, &Bucket{}, &BucketList{})
	metav1.AddToGroupVersion(s, version)
	return nil
}

func (b *Bucket) DeepCopyObject() runtime.Object {
	c := &Bucket{TypeMeta: b.TypeMeta}
	b.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	b.Spec.ManagedResourceSpec.DeepCopyInto(&c.Spec.ManagedResourceSpec)
	c.Spec.ForProvider = b.Spec.ForProvider
	b.Status.ResourceStatus.DeepCopyInto(&c.Status.ResourceStatus)
	c.Status.AtProvider = b.Status.AtProvider
	return c
}

func (l *BucketList) DeepCopyObject() runtime.Object {
	c := &BucketList{TypeMeta: l.TypeMeta}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for _, b := range l.Items {
		c.Items = append(c.Items, *b.DeepCopyObject().(*Bucket))
	}
	return c
}

func (b *Bucket) GetCondition(t xpv1.ConditionType) xpv1.Condition { return b.Status.GetCondition(t) }

func (b *Bucket) SetConditions(c ...xpv1.Condition) { b.Status.SetConditions(c...) }

func (b *Bucket) GetManagementPolicies() xpv1.ManagementPolicies { return b.Spec.ManagementPolicies }

func (b *Bucket) SetManagementPolicies(p xpv1.ManagementPolicies) { b.Spec.ManagementPolicies = p }

func (b *Bucket) GetProviderConfigReference() *xpv1.ProviderConfigReference {
	return b.Spec.ProviderConfigReference
}

func (b *Bucket) SetProviderConfigReference(r *xpv1.ProviderConfigReference) {
	b.Spec.ProviderConfigReference = r
}

func (b *Bucket) GetWriteConnectionSecretToReference() *xpv1.LocalSecretReference {
	return b.Spec.WriteConnectionSecretToReference
}

func (b *Bucket) SetWriteConnectionSecretToReference(r *xpv1.LocalSecretReference) {
	b.Spec.WriteConnectionSecretToReference = r
}

// connector makes the clients of the provider, which have no state.
type connector struct{}

func (connector) Connect(context.Context, resource.Managed) (managed.ExternalClient, error) {
	return external{}, nil
}

// external is the client of the provider: the record of a bucket has its external name.
type external struct{}

func path(mg resource.Managed) string { return "/buckets/" + meta.GetExternalName(mg) }

func (external) Observe(ctx context.Context, mg resource.Managed) (managed.ExternalObservation, error) {
	b := mg.(*Bucket)
	var is BucketParameters
	err := ask(ctx, "GET", path(mg), nil, &is)
	if errors.Is(err, errNone) {
		return managed.ExternalObservation{}, nil
	}
	if err != nil {
		return managed.ExternalObservation{}, err
	}
	b.Status.AtProvider = is
	b.SetConditions(xpv1.Available())
	return managed.ExternalObservation{ResourceExists: true, ResourceUpToDate: is == b.Spec.ForProvider,
		ConnectionDetails: managed.ConnectionDetails{"endpoint": []byte("https://" + host + path(mg))}}, nil
}

func (external) Create(ctx context.Context, mg resource.Managed) (managed.ExternalCreation, error) {
	return managed.ExternalCreation{}, write(ctx, mg)
}

func (external) Update(ctx context.Context, mg resource.Managed) (managed.ExternalUpdate, error) {
	return managed.ExternalUpdate{}, write(ctx, mg)
}

func (external) Delete(ctx context.Context, mg resource.Managed) (managed.ExternalDelete, error) {
	mg.SetConditions(xpv1.Deleting())
	return managed.ExternalDelete{}, ask(ctx, "DELETE", path(mg), nil, nil)
}

func (external) Disconnect(context.Context) error { return nil }

func write(ctx context.Context, mg resource.Managed) error {
	data, err := json.Marshal(mg.(*Bucket).Spec.ForProvider)
	if err != nil {
		return err
	}
	return ask(ctx, "PUT", path(mg), json.RawMessage(data), nil)
}
