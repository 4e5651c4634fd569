package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TLS asks for TLS between members, and between clients and members. The certificates come from a CA of the cluster's
// own. Clients find what they need in the Secret NAME-client: tls.crt, tls.key and ca.crt, which change.
//
// +kubebuilder:validation:XValidation:rule="self.caSeconds>=6*self.certificateSeconds",message="caSeconds is too short"
// +kubebuilder:validation:XValidation:rule="self.caSeconds>=9*self.clientSeconds",message="caSeconds is too short"
// +kubebuilder:validation:XValidation:rule="self.clientSeconds>0||self.caSeconds>=9*self.certificateSeconds"
type TLS struct {
	// Generation is the lowest number of a CA that is good enough. Give it a number above status.tls.ca to have the CA
	// replaced.
	//
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	Generation int32 `json:"generation,omitempty"`

	// CASeconds is how long a CA lives: at least 6 times certificateSeconds, and 9 times clientSeconds. It is replaced
	// when a third is left. Default: 5 years.
	//
	// +kubebuilder:default=157680000
	// +kubebuilder:validation:Minimum=60
	// +kubebuilder:validation:Maximum=3153600000
	CASeconds int64 `json:"caSeconds,omitempty"`

	// CertificateSeconds is how long all other certificates live. They are replaced when a third is left. Default: 90
	// days.
	//
	// +kubebuilder:default=7776000
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=315360000
	CertificateSeconds int64 `json:"certificateSeconds,omitempty"`

	// ClientSeconds is how long clients take at most until they use a Secret that has changed. The replacement of a CA
	// waits for this time twice. 0: certificateSeconds, since a client that takes longer fails anyhow.
	//
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=315360000
	ClientSeconds int64 `json:"clientSeconds,omitempty"`
}

// TLSStatus is what the operator knows of the certificates.
type TLSStatus struct {
	// CA is the number of the CA that signs, and Step what is done to replace it: Steady, Spreading (members start that
	// trust the next CA as well) or Replacing (the next CA signs, and both are trusted).
	CA   int32  `json:"ca,omitempty"`
	Step string `json:"step,omitempty"`

	// CAEnds is when the certificate of that CA ends, and CertificatesEnd when the first one ends of those that members
	// show.
	CAEnds          *metav1.Time `json:"caEnds,omitempty"`
	CertificatesEnd *metav1.Time `json:"certificatesEnd,omitempty"`
}

// Secured is a condition of an EtcdCluster with spec.tls: the certificates are good for some time.
const Secured = "Secured"

// Reasons of the condition Secured. Those of True are the steps in status.tls.
const (
	ReasonNoCA   = "NoCA"   // False: the Secret of the CA is gone or damaged; nothing is renewed
	ReasonEnding = "Ending" // False: a certificate ends soon, and its member has no newer one
)
