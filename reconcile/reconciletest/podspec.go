package reconciletest

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// defaultPodSpec fills in what pods and pod templates leave open.
func defaultPodSpec(spec *corev1.PodSpec) {
	orValue(&spec.ServiceAccountName, spec.DeprecatedServiceAccount)
	spec.DeprecatedServiceAccount = spec.ServiceAccountName
	orValue(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	orValue(&spec.DNSPolicy, corev1.DNSClusterFirst)
	orValue(&spec.SchedulerName, corev1.DefaultSchedulerName)
	orDefault(&spec.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	orDefault(&spec.SecurityContext, corev1.PodSecurityContext{})
	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i])
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i])
	}
}

// defaultVolume makes a volume of no kind an empty folder.
func defaultVolume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Secret != nil {
		orDefault(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		orDefault(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		orDefault(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultFieldRefs(v.DownwardAPI.Items)
	}
	// Of a fork: elsewhere they are refused.
	if v.HostPath != nil {
		orDefault(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		orDefault(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
	if v.Image != nil {
		orValue(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	}
	if v.ISCSI != nil {
		orValue(&v.ISCSI.ISCSIInterface, "default")
	}
}

func defaultFieldRefs(items []corev1.DownwardAPIVolumeFile) {
	for _, item := range items {
		if item.FieldRef != nil {
			orValue(&item.FieldRef.APIVersion, "v1")
		}
	}
}

func defaultProjected(v *corev1.ProjectedVolumeSource) {
	orDefault(&v.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for _, source := range v.Sources {
		if source.ServiceAccountToken != nil {
			orDefault(&source.ServiceAccountToken.ExpirationSeconds, int64(time.Hour/time.Second))
		}
		if source.DownwardAPI != nil {
			defaultFieldRefs(source.DownwardAPI.Items)
		}
	}
}

func defaultContainer(c *corev1.Container) {
	orValue(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orValue(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	orValue(&c.ImagePullPolicy, pullPolicy(c.Image))
	for i := range c.Ports {
		orValue(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			orValue(&from.FieldRef.APIVersion, "v1")
		}
	}
	for _, probe := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if probe == nil {
			continue
		}
		orValue(&probe.TimeoutSeconds, 1)
		orValue(&probe.PeriodSeconds, 10)
		orValue(&probe.SuccessThreshold, 1)
		orValue(&probe.FailureThreshold, 3)
		defaultHTTPGet(probe.HTTPGet)
		if probe.GRPC != nil {
			orDefault(&probe.GRPC.Service, "")
		}
	}
	if c.Lifecycle != nil {
		for _, hook := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if hook != nil {
				defaultHTTPGet(hook.HTTPGet)
			}
		}
	}
	defaultResources(c.Resources.Limits)
	defaultResources(c.Resources.Requests)
}

func defaultHTTPGet(get *corev1.HTTPGetAction) {
	if get != nil {
		orValue(&get.Path, "/")
		orValue(&get.Scheme, corev1.URISchemeHTTP)
	}
}

// defaultResources rounds quantities up to thousandths.
func defaultResources(list corev1.ResourceList) {
	for name, quantity := range list {
		quantity.RoundUp(resource.Milli)
		list[name] = quantity
	}
}

// pullPolicy is Always for an image whose tag may mean something else tomorrow.
func pullPolicy(image string) corev1.PullPolicy {
	name := image[strings.LastIndex(image, "/")+1:]
	name, digest, _ := strings.Cut(name, "@")
	_, tag, tagged := strings.Cut(name, ":")
	if digest == "" && (!tagged || tag == "latest") {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// validateTemplate says what is wrong with a pod template.
func validateTemplate(template corev1.PodTemplateSpec, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(template.Labels, path.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(template.Annotations, path.Child("annotations"))...)
	return append(errs, validatePodSpec(template.Spec, path.Child("spec"))...)
}

// validatePodSpec says what is wrong with the fields of which modelled.go leaves more than good values.
func validatePodSpec(spec corev1.PodSpec, path *field.Path) (errs field.ErrorList) {
	volumes := make(map[string]bool)
	for i, v := range spec.Volumes {
		at := path.Child("volumes").Index(i)
		wrong := append(validateVolume(v.VolumeSource, at), validateLabelName(v.Name, at.Child("name"))...)
		if volumes[v.Name] {
			wrong = append(wrong, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(wrong) == 0 {
			volumes[v.Name] = true
		}
		errs = append(errs, wrong...)
	}
	if len(spec.Containers) == 0 {
		errs = append(errs, field.Required(path.Child("containers"), ""))
	}
	for i, c := range spec.Containers {
		at := path.Child("containers").Index(i)
		if slices.ContainsFunc(spec.Containers[:i], func(other corev1.Container) bool { return other.Name == c.Name }) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		errs = append(errs, validateContainer(c, volumes, at)...)
	}
	for i, c := range spec.InitContainers {
		at := path.Child("initContainers").Index(i)
		same := func(other corev1.Container) bool { return other.Name == c.Name }
		before := spec.InitContainers[:i]
		if slices.ContainsFunc(spec.Containers, same) || c.Name != "" && slices.ContainsFunc(before, same) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		errs = append(errs, validateContainer(c, volumes, at)...)
	}
	return append(errs, metav1validation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
}

// validateLabelName refuses a name that is missing or no DNS label.
func validateLabelName(name string, path *field.Path) (errs field.ErrorList) {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	for _, message := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

// required refuses a text that is missing.
func required(text string, path *field.Path) field.ErrorList {
	if text != "" {
		return nil
	}
	return field.ErrorList{field.Required(path, "")}
}

// validateVolume judges the first kind that a volume is of, and forbids more.
func validateVolume(v corev1.VolumeSource, path *field.Path) (errs field.ErrorList) {
	kinds := 0
	one := func(set bool, name string, validate func(at *field.Path) field.ErrorList) {
		switch kinds++; {
		case !set:
			kinds--
		case kinds > 1:
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 volume type"))
		default:
			errs = append(errs, validate(path.Child(name))...)
		}
	}
	one(v.EmptyDir != nil, "emptyDir", func(at *field.Path) field.ErrorList {
		if limit := v.EmptyDir.SizeLimit; limit != nil && limit.Sign() < 0 {
			return field.ErrorList{
				field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"),
			}
		}
		return nil
	})
	one(v.Secret != nil, "secret", func(at *field.Path) field.ErrorList {
		return append(
			required(v.Secret.SecretName, at.Child("secretName")),
			validateFiles(v.Secret.DefaultMode, v.Secret.Items, at)...)
	})
	one(v.PersistentVolumeClaim != nil, "persistentVolumeClaim", func(at *field.Path) field.ErrorList {
		return required(v.PersistentVolumeClaim.ClaimName, at.Child("claimName"))
	})
	// The server spells the name of this field so when there is more than one kind of volume.
	one(v.DownwardAPI != nil, "downwarAPI", func(*field.Path) field.ErrorList {
		return validateFieldFiles(v.DownwardAPI, path.Child("downwardAPI"))
	})
	one(v.ConfigMap != nil, "configMap", func(at *field.Path) field.ErrorList {
		return append(
			required(v.ConfigMap.Name, at.Child("name")),
			validateFiles(v.ConfigMap.DefaultMode, v.ConfigMap.Items, at)...)
	})
	return errs
}

// validateFiles judges the files that a volume has of a ConfigMap or a Secret.
func validateFiles(mode *int32, items []corev1.KeyToPath, path *field.Path) (errs field.ErrorList) {
	validMode := func(mode *int32, at *field.Path) {
		if mode != nil && (*mode < 0 || *mode > 0o777) {
			errs = append(errs, field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive"))
		}
	}
	validMode(mode, path.Child("defaultMode"))
	for i, item := range items {
		at := path.Child("items").Index(i)
		errs = append(errs, required(item.Key, at.Child("key"))...)
		errs = append(errs, required(item.Path, at.Child("path"))...)
		validMode(item.Mode, at.Child("mode"))
	}
	return errs
}

// validateFieldFiles judges the files that a volume has of the fields of its pod.
func validateFieldFiles(v *corev1.DownwardAPIVolumeSource, path *field.Path) (errs field.ErrorList) {
	validMode := func(mode *int32, at *field.Path) {
		if mode != nil && (*mode < 0 || *mode > 0o777) {
			errs = append(errs, field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive"))
		}
	}
	validMode(v.DefaultMode, path.Child("defaultMode"))
	for _, item := range v.Items { // the server does not say which one
		errs = append(errs, required(item.Path, path.Child("path"))...)
		switch {
		case item.FieldRef == nil:
			errs = append(errs, field.Required(path, "one of fieldRef and resourceFieldRef is required"))
		case item.FieldRef.FieldPath == "":
			errs = append(errs, field.Required(path.Child("fieldRef", "fieldPath"), ""))
		}
		validMode(item.Mode, path.Child("mode"))
	}
	return errs
}

func validateContainer(c corev1.Container, volumes map[string]bool, path *field.Path) field.ErrorList {
	errs := validateLabelName(c.Name, path.Child("name"))
	errs = append(errs, required(c.Image, path.Child("image"))...)
	portNames := make(map[string]bool)
	for i, p := range c.Ports {
		at := path.Child("ports").Index(i).Child("name")
		switch messages := validation.IsValidPortName(p.Name); {
		case p.Name == "":
		case len(messages) > 0:
			errs = append(errs, field.Invalid(at, p.Name, messages[0]))
		case portNames[p.Name]:
			errs = append(errs, field.Duplicate(at, p.Name))
		}
		portNames[p.Name] = true
	}
	for i, e := range c.Env {
		if e.ValueFrom != nil {
			errs = append(errs, validateValueFrom(e, path.Child("env").Index(i).Child("valueFrom"))...)
		}
	}
	for i, from := range c.EnvFrom {
		at := path.Child("envFrom")
		switch {
		case from.ConfigMapRef == nil && from.SecretRef == nil:
			errs = append(errs, field.Invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
		case from.ConfigMapRef != nil && from.SecretRef != nil:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
		if from.ConfigMapRef != nil {
			errs = append(errs, required(from.ConfigMapRef.Name, at.Index(i).Child("configMapRef", "name"))...)
		}
		if from.SecretRef != nil {
			errs = append(errs, required(from.SecretRef.Name, at.Index(i).Child("secretRef", "name"))...)
		}
	}
	errs = append(errs, validateMounts(c.VolumeMounts, volumes, path.Child("volumeMounts"))...)
	errs = append(errs, validateResources(c.Resources, path.Child("resources"))...)
	for name, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe,
		"readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
		if probe == nil {
			continue
		}
		at := path.Child(name)
		errs = append(errs, validateProbe(*probe, at)...)
		if name != "readinessProbe" && probe.SuccessThreshold != 1 {
			errs = append(errs, field.Invalid(at.Child("successThreshold"), probe.SuccessThreshold, "must be 1"))
		}
	}
	return errs
}

// validateValueFrom judges where the value of an environment variable comes from.
func validateValueFrom(e corev1.EnvVar, path *field.Path) (errs field.ErrorList) {
	sources := 0
	key := func(name, key string, at *field.Path) {
		sources++
		for _, message := range apivalidation.NameIsDNSSubdomain(name, false) {
			errs = append(errs, field.Invalid(at.Child("name"), name, message))
		}
		errs = append(errs, required(key, at.Child("key"))...)
		for _, message := range validation.IsConfigMapKey(key) {
			if key != "" {
				errs = append(errs, field.Invalid(at.Child("key"), key, message))
			}
		}
	}
	if ref := e.ValueFrom.FieldRef; ref != nil {
		sources++
		at := path.Child("fieldRef", "fieldPath")
		switch {
		case ref.FieldPath == "":
			errs = append(errs, field.Required(at, ""))
		case !slices.Contains(podFields, ref.FieldPath):
			errs = append(errs, field.NotSupported(at, ref.FieldPath, podFields))
		}
	}
	if ref := e.ValueFrom.ConfigMapKeyRef; ref != nil {
		key(ref.Name, ref.Key, path.Child("configMapKeyRef"))
	}
	if ref := e.ValueFrom.SecretKeyRef; ref != nil {
		key(ref.Name, ref.Key, path.Child("secretKeyRef"))
	}
	switch {
	case sources == 0:
		errs = append(
			errs,
			field.Invalid(
				path,
				"",
				"must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`",
			),
		)
	case e.Value != "":
		errs = append(errs, field.Invalid(path, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(path, "", "may not have more than one field specified at a time"))
	}
	return errs
}

// podFields are those of a pod that an environment variable can have the value of.
var podFields = []string{
	"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
}

func validateMounts(mounts []corev1.VolumeMount, volumes map[string]bool, path *field.Path) (errs field.ErrorList) {
	for i, m := range mounts {
		at := path.Index(i)
		errs = append(errs, required(m.Name, at.Child("name"))...)
		if !volumes[m.Name] {
			errs = append(errs, field.NotFound(at.Child("name"), m.Name))
		}
		errs = append(errs, required(m.MountPath, at.Child("mountPath"))...)
		if slices.ContainsFunc(
			mounts[:i],
			func(other corev1.VolumeMount) bool { return other.MountPath == m.MountPath },
		) {
			errs = append(errs, field.Invalid(at.Child("mountPath"), m.MountPath, "must be unique"))
		}
	}
	return errs
}

func validateResources(r corev1.ResourceRequirements, path *field.Path) (errs field.ErrorList) {
	for name, quantity := range r.Limits {
		errs = append(errs, nonnegativeQuantity(quantity, path.Child("limits").Key(string(name)))...)
	}
	for name, quantity := range r.Requests {
		errs = append(errs, nonnegativeQuantity(quantity, path.Child("requests").Key(string(name)))...)
		if limit, ok := r.Limits[name]; ok && quantity.Cmp(limit) > 0 {
			errs = append(
				errs,
				field.Invalid(
					path.Child("requests"),
					quantity.String(),
					fmt.Sprintf("must be less than or equal to %s limit of %s", name, &limit),
				),
			)
		}
	}
	return errs
}

func nonnegativeQuantity(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, q.String(), "must be greater than or equal to 0")}
}

func validateProbe(p corev1.Probe, path *field.Path) (errs field.ErrorList) {
	handlers := 0
	one := func(set bool, name string, validate func(at *field.Path) field.ErrorList) {
		switch handlers++; {
		case !set:
			handlers--
		case handlers > 1:
			errs = append(errs, field.Forbidden(path.Child(name), "may not specify more than 1 handler type"))
		default:
			errs = append(errs, validate(path.Child(name))...)
		}
	}
	one(p.Exec != nil, "exec", func(at *field.Path) field.ErrorList {
		if len(p.Exec.Command) > 0 {
			return nil
		}
		return field.ErrorList{field.Required(at.Child("command"), "")}
	})
	one(
		p.HTTPGet != nil,
		"httpGet",
		func(at *field.Path) field.ErrorList { return validatePort(p.HTTPGet.Port, at.Child("port")) },
	)
	one(
		p.TCPSocket != nil,
		"tcpSocket",
		func(at *field.Path) field.ErrorList { return validatePort(p.TCPSocket.Port, at.Child("port")) },
	)
	if handlers == 0 {
		errs = append(errs, field.Required(path, "must specify a handler type"))
	}
	for name, n := range map[string]int32{
		"initialDelaySeconds": p.InitialDelaySeconds, "timeoutSeconds": p.TimeoutSeconds,
		"periodSeconds":    p.PeriodSeconds,
		"successThreshold": p.SuccessThreshold, "failureThreshold": p.FailureThreshold,
	} {
		errs = append(errs, nonnegative(path.Child(name), int64(n))...)
	}
	return errs
}

// validatePort judges a port that may be a number or a name.
func validatePort(port intstr.IntOrString, path *field.Path) (errs field.ErrorList) {
	messages := validation.IsValidPortNum(port.IntValue())
	if port.Type == intstr.String {
		messages = validation.IsValidPortName(port.StrVal)
	}
	for _, message := range messages {
		errs = append(errs, field.Invalid(path, port.String(), message))
	}
	return errs
}

// templateBeyond names what is not modelled of a pod or a pod template as a whole. Empty: there is nothing.
func templateBeyond(template corev1.PodTemplateSpec) string {
	for name := range template.Annotations {
		if strings.Contains(name, "alpha.kubernetes.io/") || strings.Contains(name, "beta.kubernetes.io/") {
			return "the annotation " + name
		}
	}
	return podSpecBeyond(template.Spec)
}

// podSpecBeyond names what is not modelled of how the fields of a pod go together: a real server warns of it, or
// refuses it. Empty: there is nothing.
func podSpecBeyond(spec corev1.PodSpec) string {
	if spec.Affinity != nil && spec.Affinity.PodAntiAffinity != nil {
		for _, term := range spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			if term.Weight == 0 || term.PodAffinityTerm.TopologyKey == "" {
				return "a preference of podAntiAffinity without a weight or a topologyKey"
			}
		}
	}
	ports := make(map[corev1.ContainerPort]bool)
	names := make(map[string]bool)
	for _, v := range spec.Volumes {
		var items []corev1.KeyToPath
		if v.ConfigMap != nil {
			items = v.ConfigMap.Items
		}
		if v.Secret != nil {
			items = append(items, v.Secret.Items...)
		}
		if v.DownwardAPI != nil {
			for _, item := range v.DownwardAPI.Items {
				items = append(items, corev1.KeyToPath{Path: item.Path})
			}
		}
		paths := make(map[string]bool)
		for _, item := range items {
			if paths[item.Path] {
				return "a path of a volume that is there twice"
			}
			paths[item.Path] = true
		}
	}
	for _, c := range spec.Containers {
		variables := make(map[string]bool)
		for _, e := range c.Env {
			if variables[e.Name] {
				return "an environment variable that is there twice"
			}
			variables[e.Name] = true
		}
		for _, p := range c.Ports {
			plain := corev1.ContainerPort{ContainerPort: p.ContainerPort, Protocol: p.Protocol}
			orValue(&plain.Protocol, corev1.ProtocolTCP)
			if ports[plain] || p.Name != "" && names[p.Name] {
				return "a port that is there twice"
			}
			ports[plain], names[p.Name] = true, true
		}
	}
	return ""
}

var (
	image = regexp.MustCompile(
		`^([a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)*(:\d+)?/)?[a-z0-9]+([._/-][a-z0-9]+)*(:\w[\w.-]{0,` +
			`127})?(@sha256:[0-9a-f]{64})?$`,
	)
	// fileField are the fields of a pod that a file can have.
	fileField = regexp.MustCompile(
		`^metadata\.(name|namespace|uid|` +
			`(labels|annotations)(\['([a-z0-9.-]*[a-z0-9]/)?[A-Za-z0-9][A-Za-z0-9_-]*[a-z]'\])?)$`,
	)
	file = regexp.MustCompile(`^[a-zA-Z0-9_-][a-zA-Z0-9_.-]*$`)
	// deprecatedLabels are those of nodes that a real server warns of.
	deprecatedLabels = regexp.MustCompile(
		`beta\.kubernetes\.io|^app\.kubernetes\.io/created-by$|^scheduler\.alpha|^node-role\.kubernetes\.io/master$`,
	)
)

// podSpec are the fields of a PodSpec at a path, and some more.
func podSpec(path string, more modelled) modelled {
	userID := between(0, math.MaxInt32)
	m := modelled{
		"dnsPolicy": oneOf(
			"ClusterFirst",
			"Default",
		),
		"schedulerName":                 dnsName,
		"automountServiceAccountToken":  anything,
		"terminationGracePeriodSeconds": seconds,
		"nodeSelector": func(v any) bool {
			labels, ok := v.(map[string]any)
			return ok && !slices.ContainsFunc(slices.Collect(maps.Keys(labels)), deprecatedLabels.MatchString)
		},
		"securityContext.runAsUser":    userID,
		"securityContext.runAsGroup":   userID,
		"securityContext.fsGroup":      userID,
		"securityContext.runAsNonRoot": anything,
		"securityContext.fsGroupChangePolicy": oneOf(
			"OnRootMismatch",
			"Always",
		),
		"securityContext.seccompProfile.type":       oneOf("RuntimeDefault", "Unconfined"),
		"volumes[].name":                            anything,
		"volumes[].emptyDir.medium":                 oneOf("", "Memory"),
		"volumes[].emptyDir.sizeLimit":              anything,
		"volumes[].persistentVolumeClaim.claimName": anything,
		"volumes[].persistentVolumeClaim.readOnly":  anything,
		"volumes[].configMap.name":                  anything,
		"volumes[].secret.secretName":               anything,
		"volumes[].downwardAPI.defaultMode":         anything,
		"volumes[].downwardAPI.items[].path":        matches(file),
		"volumes[].downwardAPI.items[].mode":        anything,

		"volumes[].downwardAPI.items[].fieldRef.apiVersion": oneOf("v1"),
		"volumes[].downwardAPI.items[].fieldRef.fieldPath":  emptyOr(matches(fileField)),
	}
	for _, kind := range []string{"volumes[].configMap", "volumes[].secret"} {
		m = m.with(kind, "optional", "defaultMode", "items[].key", "items[].mode").
			and(kind, modelled{"items[].path": matches(file)})
	}
	return modelled{}.and(path, more).and(path, m).and(path+".containers[]", container())
}

// initContainer are the fields of an init container: no probes, no ports, no resources.
func initContainer() modelled {
	m := container()
	maps.DeleteFunc(m, func(name string, _ func(any) bool) bool {
		first, _, _ := strings.Cut(name, ".")
		return !slices.Contains([]string{"name", "image", "imagePullPolicy", "command", "args", "workingDir",
			"env[]", "envFrom[]", "volumeMounts[]", "securityContext", "terminationMessagePath",
			"terminationMessagePolicy"}, first)
	})
	return m
}

// container are the fields of a container.
func container() modelled {
	userID := between(0, math.MaxInt32)
	m := modelled{
		"name":                                anything,
		"image":                               matches(image),
		"imagePullPolicy":                     oneOf("Always", "IfNotPresent", "Never"),
		"command":                             anything,
		"args":                                anything,
		"workingDir":                          anything,
		"env[].name":                          envName,
		"env[].value":                         anything,
		"env[].valueFrom.fieldRef.apiVersion": oneOf("v1"),
		"env[].valueFrom.fieldRef.fieldPath": oneOf(
			append([]any{"", "spec.restartPolicy", "status.phase"}, toAny(podFields)...)...),
		"envFrom[].prefix":            envName,
		"envFrom[].configMapRef.name": emptyOr(dnsName),
		"envFrom[].secretRef.name":    emptyOr(dnsName),
		"ports[].name":                anything,
		"ports[].containerPort":       between(1, math.MaxUint16),
		"ports[].protocol":            oneOf("TCP", "UDP", "SCTP"),
		"terminationMessagePath": oneOf(
			corev1.TerminationMessagePathDefault,
		),
		"terminationMessagePolicy":          oneOf("File", "FallbackToLogsOnError"),
		"volumeMounts[].name":               anything,
		"volumeMounts[].mountPath":          anything,
		"volumeMounts[].readOnly":           anything,
		"securityContext.runAsUser":         userID,
		"securityContext.runAsGroup":        userID,
		"securityContext.capabilities.drop": anything,
		"securityContext.seccompProfile.type": oneOf(
			"RuntimeDefault",
			"Unconfined",
		),
		"stdin":     anything,
		"stdinOnce": anything,
		"tty":       anything,
	}.with("securityContext", "runAsNonRoot", "readOnlyRootFilesystem", "allowPrivilegeEscalation").
		with("envFrom[].configMapRef", "optional").with("envFrom[].secretRef", "optional").
		with("env[].valueFrom.configMapKeyRef", "name", "key", "optional").
		with("env[].valueFrom.secretKeyRef", "name", "key", "optional")
	for _, list := range []string{"resources.limits", "resources.requests"} {
		m = m.and(list, modelled{"cpu": anything, "memory": wholeQuantity, "ephemeral-storage": wholeQuantity})
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		m = m.with(probe, "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
			"failureThreshold").
			with(probe, "exec.command", "httpGet.path", "httpGet.port", "tcpSocket.port").
			and(probe, modelled{"httpGet.scheme": oneOf("HTTP", "HTTPS")})
	}
	return m
}

// wholeQuantity is a number of bytes that has no fraction: a real server warns of others.
func wholeQuantity(v any) bool {
	s, ok := v.(string)
	q, err := resource.ParseQuantity(s)
	return ok && err == nil && q.MilliValue()%1000 == 0
}

func emptyOr(check func(any) bool) func(any) bool {
	return func(v any) bool { return v == "" || check(v) }
}

func matches(r *regexp.Regexp) func(any) bool {
	return func(v any) bool { s, ok := v.(string); return ok && (s == "" || r.MatchString(s)) }
}

func toAny[T any](list []T) (all []any) {
	for _, e := range list {
		all = append(all, e)
	}
	return all
}
