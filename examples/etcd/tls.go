package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/thermostat-go/thermostat/examples/etcd/api/v1"
	"github.com/thermostat-go/thermostat/examples/etcd/certs"
	"github.com/thermostat-go/thermostat/examples/etcd/plan"
	"github.com/thermostat-go/thermostat/informer"
	"github.com/thermostat-go/thermostat/reconcile/objects"
)

// secured is what a call knows of the certificates of its cluster, which package certs decides on. The Secrets are
// NAME-ca for the operator alone, NAME-client for it and for clients, and one for each member.
type secured struct {
	terms     certs.Terms
	ca        certs.Authority
	secret    *corev1.Secret // of ca; nil: there is none, and problem says why
	reason    string         // then
	problem   string
	bundle    []byte // that pods trust which are made now
	ends      time.Time
	expecting bool // a certificate should have been renewed by now
}

func (r *call) caName() string { return r.cluster.Name + "-ca" }

func clientSecret(cluster string) string { return cluster + "-client" }

func scheme(cluster *v1.EtcdCluster) string {
	if cluster.Spec.TLS != nil {
		return "https://"
	}
	return "http://"
}

// certify reads the CA, and makes or renews the Secrets that are signed by it. From here on the members are asked with
// the certificate of a client.
func (r *call) certify(ctx context.Context) error {
	spec := r.cluster.Spec.TLS
	if spec == nil {
		r.etcd = r.connect(nil)
		return nil
	}
	s := &r.tls
	var err error
	if s.terms, err = (certs.Terms{CA: time.Duration(spec.CASeconds) * time.Second,
		Leaf:    time.Duration(spec.CertificateSeconds) * time.Second,
		Clients: time.Duration(spec.ClientSeconds) * time.Second}).Complete(); err != nil {
		return err
	}
	if err := r.authority(ctx); err != nil {
		return err
	}
	client, err := r.leaf(ctx, clientSecret(r.cluster.Name), certs.Request{})
	if err != nil {
		return err
	}
	s.bundle = client[certs.BundleKey]
	if s.secret != nil {
		s.bundle = s.ca.Bundle()
	}
	config, err := certs.Config(client)
	if err != nil { // no member lets us in
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	r.etcd = r.connect(config)
	return r.memberSecrets(ctx)
}

// authority reads the CA, or makes the first one. A CA that is lost is not replaced by itself, since no member trusts
// another one before it starts again.
func (r *call) authority(ctx context.Context) error {
	s := &r.tls
	client := r.secrets.In(r.cluster.Namespace)
	secret, ok := r.secrets.Cache.Get(informer.Key{Namespace: r.cluster.Namespace, Name: r.caName()})
	formed := r.cluster.Status.ClusterID != ""
	if !ok && formed { // a cache may be behind
		live, err := client.Get(ctx, r.caName(), metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		secret, ok = live, err == nil
	}
	wanted, signs, known := int(r.cluster.Spec.TLS.Generation), 0, 0
	if status := r.cluster.Status.TLS; status != nil {
		signs, known = int(status.CA), int(status.CA)
		if status.Step == string(certs.Spreading) {
			known++ // the next one is made already
		}
	}
	switch {
	case ok && metav1.IsControlledBy(secret, r.cluster):
	case formed && wanted <= known:
		s.reason, s.problem = v1.ReasonNoCA, fmt.Sprintf("there is no Secret %s of this EtcdCluster, and no "+
			"certificate is renewed: bring it back, or %s", r.caName(), anew(known))
		return nil
	case r.cluster.Spec.Paused:
		s.reason, s.problem = v1.ReasonNoCA, "there is no CA yet"
		return nil
	default:
		ca, err := certs.New(r.title(), max(1, wanted), s.terms, time.Now())
		if err != nil {
			return err
		}
		if secret, err = objects.CreateOwned(ctx, r.owner, client, r.secret(r.caName(), ca.Data())); err != nil {
			return err
		}
	}
	ca, err := certs.Parse(secret.Data)
	if err == nil && ca.Number < signs {
		err = fmt.Errorf("it has CA %d, and CA %d signs already", ca.Number, signs)
	}
	if err != nil {
		s.reason, s.problem = v1.ReasonNoCA, fmt.Sprintf("Secret %s: %v; no certificate is renewed: bring back its "+
			"content, or delete it and %s", r.caName(), err, anew(known))
		return nil
	}
	s.ca, s.secret = ca, secret
	return nil
}

// anew is what a person does when the CA cannot be brought back.
func anew(known int) string {
	return fmt.Sprintf("give spec.tls.generation a number above %d, which makes a new CA and restarts all members at "+
		"once", known)
}

// title is in the certificates of CAs, for people.
func (r *call) title() string { return r.cluster.Namespace + "/" + r.cluster.Name }

func (r *call) secret(name string, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: r.meta(name), Type: corev1.SecretTypeOpaque, Data: data}
}

// leaf returns the content of the Secret with a certificate, after it was made or renewed if need be. A change holds
// for the version that was seen only: what an operator with an older CA writes is refused.
func (r *call) leaf(ctx context.Context, secret string, request certs.Request) (map[string][]byte, error) {
	client := r.secrets.In(r.cluster.Namespace)
	seen, ok := r.secrets.Cache.Get(informer.Key{Namespace: r.cluster.Namespace, Name: secret})
	if r.tls.secret == nil || r.cluster.Spec.Paused {
		if ok && metav1.IsControlledBy(seen, r.cluster) {
			return seen.Data, nil
		}
		return nil, nil
	}
	var is map[string][]byte
	if ok {
		is = seen.Data
	}
	data, changed, err := r.tls.ca.Leaf(is, request, r.tls.terms, time.Now())
	switch {
	case err != nil:
		return nil, err
	case !ok || !metav1.IsControlledBy(seen, r.cluster):
		made, err := objects.CreateOwned(ctx, r.owner, client, r.secret(secret, data))
		if err != nil {
			return nil, err
		}
		return made.Data, nil
	case !changed || seen.DeletionTimestamp != nil:
		return is, nil
	}
	renewed := seen.DeepCopy()
	renewed.Data = data
	_, err = client.Update(ctx, renewed, metav1.UpdateOptions{FieldManager: name})
	return data, err
}

// memberSecrets makes a Secret for each member that has a disk or a pod, and deletes those of members that are gone.
func (r *call) memberSecrets(ctx context.Context) error {
	addresses := map[string]string{}
	for claim := range r.claimsOf.Get(r.cluster.UID) {
		addresses[claim.Name] = ""
	}
	for pod := range r.podsOf.Get(r.cluster.UID) {
		addresses[pod.Name] = pod.Status.PodIP
	}
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		if _, err := r.leaf(ctx, name, r.request(name, addresses[name])); err != nil {
			return err
		}
	}
	if r.cluster.Spec.Paused {
		return nil
	}
	for secret := range r.secretsOf.Get(r.cluster.UID) {
		_, used := addresses[secret.Name]
		if used || secret.Name == r.caName() || secret.Name == clientSecret(r.cluster.Name) {
			continue
		}
		if _, err := objects.DeleteOwned(ctx, r.owner, r.secrets.In(secret.Namespace), secret,
			metav1.DeletePropagationBackground); err != nil {
			return err
		}
	}
	return nil
}

// request is what the certificate of a member is for. Without names, it is for the last address of its pod.
func (r *call) request(member, podIP string) certs.Request {
	service := r.cluster.Name + "-client." + r.cluster.Namespace + ".svc"
	request := certs.Request{DNS: []string{"localhost", service}}
	if !r.addresses {
		request.DNS = append(request.DNS, r.host(member, ""))
		return request
	}
	if ip := net.ParseIP(podIP); ip != nil {
		request.IPs = []net.IP{ip}
	} else if seen, ok := r.secrets.Cache.Get(informer.Key{Namespace: r.cluster.Namespace, Name: member}); ok {
		request.IPs = certs.Addresses(seen.Data)
	}
	return request
}

// rotate replaces the CA step by step. It reports whether it has taken a step: the change of the Secret brings the key
// back.
func (r *call) rotate(ctx context.Context, seen *observed) (bool, error) {
	s := &r.tls
	if r.cluster.Spec.TLS == nil {
		return false, nil
	}
	now := time.Now()
	facts := certs.Facts{Generation: int(r.cluster.Spec.TLS.Generation), Trusting: true, Renewed: seen.Listed}
	for _, m := range seen.Members {
		shown := seen.shown[m.Name]
		facts.Trusting = facts.Trusting && (m.Pod == plan.Absent || m.Trust == plan.TrustsAll)
		facts.Renewed = facts.Renewed && (m.ID == 0 || s.ca.Signed(shown))
		if shown == nil {
			continue
		}
		if s.ends.IsZero() || shown.NotAfter.Before(s.ends) {
			s.ends = shown.NotAfter
		}
	}
	s.expecting = !s.ends.IsZero() && s.ends.Sub(now) < s.terms.Leaf/6
	if s.secret == nil || r.cluster.Spec.Paused {
		return false, nil
	}
	next, changed, err := s.ca.Next(r.title(), facts, s.terms, now)
	if err != nil || !changed {
		return false, err
	}
	secret := s.secret.DeepCopy()
	secret.Data = next.Data()
	_, err = r.secrets.In(secret.Namespace).Update(ctx, secret, metav1.UpdateOptions{FieldManager: name})
	if err != nil {
		return false, err
	}
	r.events.Event(r.cluster, corev1.EventTypeNormal, string(next.Step), r.stepOf(next))
	return true, nil
}

// stepOf says what a step is about.
func (r *call) stepOf(ca certs.Authority) string {
	switch wait := ca.Since.Add(r.tls.terms.Clients).UTC().Format(time.RFC3339); ca.Step {
	case certs.Spreading:
		return fmt.Sprintf("CA %d is to be replaced: members start that trust CA %d as well; it takes over after %s",
			ca.Number, ca.Number+1, wait)
	case certs.Replacing:
		return fmt.Sprintf("CA %d signs; the one before is trusted until all certificates are replaced, and at least "+
			"until %s", ca.Number, wait)
	}
	return fmt.Sprintf("CA %d signs, and no other one is trusted", ca.Number)
}

// secured is the condition Secured. It fills status.tls as well.
func (r *call) secured(status *v1.EtcdClusterStatus) metav1.Condition {
	s := &r.tls
	if status.TLS == nil {
		status.TLS = &v1.TLSStatus{}
	}
	if !s.ends.IsZero() {
		status.TLS.CertificatesEnd = &metav1.Time{Time: s.ends}
	}
	c := metav1.Condition{Type: v1.Secured, Status: metav1.ConditionFalse, Reason: s.reason, Message: s.problem}
	if s.secret == nil {
		return c
	}
	status.TLS.CA, status.TLS.Step = int32(s.ca.Number), string(s.ca.Step)
	status.TLS.CAEnds = &metav1.Time{Time: s.ca.End()}
	if s.expecting {
		c.Reason, c.Message = v1.ReasonEnding, fmt.Sprintf("a member shows a certificate that ends at %s: its pod "+
			"should have a newer one from its Secret by now; look at its node", s.ends.UTC().Format(time.RFC3339))
		return c
	}
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, string(s.ca.Step), r.stepOf(s.ca)
	return c
}

// trustNote is the annotation of a pod with the CAs that its etcd trusts. The pod has it as a file. So what a member
// trusts can be told from its pod, and does not change while etcd runs, which would not notice.
const trustNote = "etcd.example.com/trusts"

// Where a pod has its certificates.
const (
	tlsDir   = "/etc/etcd/tls"
	trustDir = "/etc/etcd/trust"
)

// healthPort serves /health and /metrics in plain text: the kubelet, which probes, has no certificate.
const healthPort = 2381

// withTLS gives a pod its certificates.
func (r *call) withTLS(pod *corev1.Pod) {
	c := &pod.Spec.Containers[0]
	cert := func(name string) string { return tlsDir + "/" + name }
	trust := trustDir + "/" + certs.BundleKey
	for _, env := range [][2]string{
		{"CERT_FILE", cert(certs.CertKey)}, {"KEY_FILE", cert(certs.PrivateKey)},
		{"TRUSTED_CA_FILE", trust}, {"CLIENT_CERT_AUTH", "true"},
		{"PEER_CERT_FILE", cert(certs.CertKey)}, {"PEER_KEY_FILE", cert(certs.PrivateKey)},
		{"PEER_CLIENT_CERT_FILE", cert(certs.DialCert)}, {"PEER_CLIENT_KEY_FILE", cert(certs.DialKey)},
		{"PEER_TRUSTED_CA_FILE", trust}, {"PEER_CLIENT_CERT_AUTH", "true"},
		{"PEER_CERT_ALLOWED_CN", certs.MemberName},
		{"LISTEN_METRICS_URLS", fmt.Sprintf("http://0.0.0.0:%d", healthPort)},
	} {
		c.Env = append(c.Env, corev1.EnvVar{Name: "ETCD_" + env[0], Value: env[1]})
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: "health", ContainerPort: healthPort})
	for _, p := range []*corev1.Probe{c.StartupProbe, c.ReadinessProbe, c.LivenessProbe} {
		p.HTTPGet.Port.IntVal = healthPort
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "tls", MountPath: tlsDir, ReadOnly: true},
		corev1.VolumeMount{Name: "trust", MountPath: trustDir, ReadOnly: true})
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[trustNote] = string(r.tls.bundle)
	pod.Spec.Volumes = append(pod.Spec.Volumes, secretVolume("tls", pod.Name),
		corev1.Volume{Name: "trust", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{Path: certs.BundleKey, FieldRef: &corev1.ObjectFieldSelector{
				FieldPath: "metadata.annotations['" + trustNote + "']"}}}}}})
}

// secretVolume is readable for the group of the pod only.
func secretVolume(volume, secret string) corev1.Volume {
	return corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: secret, DefaultMode: new(int32(0o440))}}}
}

// trust compares what a pod trusts with what it should.
func (r *call) trust(pod *corev1.Pod) plan.Trust {
	has := pod.Annotations[trustNote]
	switch {
	case r.cluster.Spec.TLS == nil || len(r.tls.bundle) == 0 || has == string(r.tls.bundle):
		return plan.TrustsAll
	case certs.Common([]byte(has), r.tls.bundle, time.Now()):
		return plan.TrustsSome
	}
	return plan.TrustsNone
}
