package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Tenant is a team that uses the cluster: it has a namespace for each of its projects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Projects",type=string,JSONPath=`.spec.projects`
// +kubebuilder:printcolumn:name="Role",type=string,JSONPath=`.spec.role`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 30",message="name too long for a namespace's"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.contains('.')",message="no dots: namespaces have none"
type Tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   TenantSpec   `json:"spec"`
	Status TenantStatus `json:"status,omitempty"`
}

// TenantSpec is what the platform's administrators want.
type TenantSpec struct {
	// Projects are the tenant's projects. Each has the namespace TENANT-PROJECT. If a project is taken out, its
	// namespace is deleted with all that is in it.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=50
	// +kubebuilder:validation:items:MaxLength=30
	// +kubebuilder:validation:items:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Projects []string `json:"projects,omitempty"`

	// Members are the names of the users who work in the namespaces.
	//
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=200
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Members []string `json:"members,omitempty"`

	// Role is the ClusterRole that the members have in the namespaces.
	//
	// +kubebuilder:default=edit
	// +kubebuilder:validation:Enum=view;edit;admin
	Role string `json:"role,omitempty"`

	// Quota is what the pods of each namespace may use together, such as requests.cpu: "4".
	//
	// +optional
	Quota corev1.ResourceList `json:"quota,omitempty"`

	// PullSecret is the name of a Secret in the namespace of the platform. Each namespace has a copy, as long as there
	// is that Secret.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	PullSecret string `json:"pullSecret,omitempty"`
}

// TenantStatus is what the operator has seen.
type TenantStatus struct {
	// ObservedGeneration is the generation of the spec that the rest of the status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Namespaces are those that the tenant has, in order.
	//
	// +listType=atomic
	Namespaces []string `json:"namespaces,omitempty"`

	// Conditions has one condition, Ready.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// The condition of a Tenant, and its reasons.
const (
	Ready = "Ready"

	ReasonProvisioned   = "Provisioned"   // True: all is as wanted
	ReasonProgressing   = "Progressing"   // False: something is being made, replaced or deleted
	ReasonNameTaken     = "NameTaken"     // False: an object of that name is not the tenant's
	ReasonRefused       = "Refused"       // False: the API server refuses an object; another spec may help
	ReasonSecretMissing = "SecretMissing" // False: the platform has no Secret of that name
	ReasonFailed        = "Failed"        // False: a request has failed; it is made again
	ReasonCleaningUp    = "CleaningUp"    // False: the Tenant is being deleted
)

// OwnerLabel marks what a Tenant owns, by its UID. It is also the name of an annotation, with a slash and the name.
//
// What a Tenant owns has no owner references. In a foreground deletion the garbage collector would delete the network
// policies and quotas first, while the pods that they hold back still run.
const OwnerLabel = "platform.example.com/tenant"

// Finalizer holds a Tenant back until its namespaces are gone.
const Finalizer = "platform.example.com/namespaces"

// Names of what each namespace has, once.
const (
	QuotaName    = "tenant"   // of the ResourceQuota, the LimitRange and the NetworkPolicy
	MembersName  = "members"  // of the RoleBinding
	DeployerName = "deployer" // of the ServiceAccount
)
