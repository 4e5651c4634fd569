package reconciletest

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/auth/rbac/validation"
	sigsyaml "sigs.k8s.io/yaml"
)

// access is who may do what: the Roles, ClusterRoles and their bindings of manifests. It does not change once it is
// made.
type access struct {
	// roles by namespace and name; that of a ClusterRole is empty.
	roles    map[[2]string][]rbacv1.PolicyRule
	bindings []binding
}

// binding grants the rules of a role to a subject: in one namespace, or everywhere if that is empty.
type binding struct {
	user, group string
	namespace   string
	role        [2]string
}

// readAccess reads the manifests of [Options.Roles]. It returns an error for a binding whose role is missing, and for
// what is not modelled: aggregated ClusterRoles.
func readAccess(paths []string) (*access, error) {
	a := &access{roles: make(map[[2]string][]rbacv1.PolicyRule)}
	if err := eachManifest(paths, a.add); err != nil {
		return nil, fmt.Errorf("roles: %w", err)
	}
	for _, b := range a.bindings {
		if _, ok := a.roles[b.role]; !ok {
			return nil, fmt.Errorf("roles: a binding of %s names the role %q of namespace %q, which is not in the "+
				"manifests", b.user+b.group, b.role[1], b.role[0])
		}
	}
	return a, nil
}

func (a *access) add(document []byte) error {
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		rbacv1.RoleRef    `json:"roleRef"`
		Rules             []rbacv1.PolicyRule     `json:"rules"`
		Subjects          []rbacv1.Subject        `json:"subjects"`
		AggregationRule   *rbacv1.AggregationRule `json:"aggregationRule"`
	}
	if err := sigsyaml.Unmarshal(document, &head); err != nil {
		return err
	}
	if !strings.HasPrefix(head.TypeMeta.APIVersion, rbacv1.GroupName+"/") {
		return nil
	}
	if head.AggregationRule != nil {
		return fmt.Errorf("%s %s is aggregated, which is not modelled: list the rules", head.TypeMeta.Kind,
			head.ObjectMeta.Name)
	}
	switch kind := head.TypeMeta.Kind; kind {
	case "Role", "ClusterRole":
		namespace := head.ObjectMeta.Namespace
		if kind == "ClusterRole" {
			namespace = ""
		} else if namespace == "" {
			namespace = metav1.NamespaceDefault
		}
		a.roles[[2]string{namespace, head.ObjectMeta.Name}] = head.Rules
	case "RoleBinding", "ClusterRoleBinding":
		in := head.ObjectMeta.Namespace
		if kind == "ClusterRoleBinding" {
			in = ""
		} else if in == "" {
			in = metav1.NamespaceDefault
		}
		role := [2]string{in, head.RoleRef.Name}
		if head.RoleRef.Kind == "ClusterRole" {
			role[0] = ""
		}
		for _, s := range head.Subjects {
			b := binding{namespace: in, role: role}
			switch s.Kind {
			case rbacv1.ServiceAccountKind:
				b.user = ServiceAccount(s.Namespace, s.Name)
			case rbacv1.UserKind:
				b.user = s.Name
			case rbacv1.GroupKind:
				b.group = s.Name
			default:
				return fmt.Errorf("%s %s: the subject %s is of the unknown kind %q", kind, head.ObjectMeta.Name, s.Name,
					s.Kind)
			}
			a.bindings = append(a.bindings, b)
		}
	}
	return nil
}

// ServiceAccount returns the user name of a service account, for [Server.LinkAs].
func ServiceAccount(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// groupsOf returns the groups that a user belongs to by being who he is, in the order of a real server.
func groupsOf(user string) (groups []string) {
	if parts := strings.Split(user, ":"); len(parts) == 4 && strings.HasPrefix(user, "system:serviceaccount:") {
		groups = append(groups, "system:serviceaccounts", "system:serviceaccounts:"+parts[2])
	}
	return append(groups, "system:authenticated")
}

// allows reports whether a user, or one of some groups, may do what a rule of one verb, group and resource says, in a
// namespace.
func (a *access) allows(user string, groups []string, namespace string, asked rbacv1.PolicyRule) bool {
	var rules []rbacv1.PolicyRule
	for _, b := range a.bindings {
		mine := b.user == user && user != "" || slices.Contains(groups, b.group)
		if mine && (b.namespace == "" || b.namespace == namespace) {
			rules = append(rules, a.roles[b.role]...)
		}
	}
	covered, _ := validation.Covers(rules, []rbacv1.PolicyRule{asked})
	return covered
}

// asks returns the rule that has to be granted for a request.
func (r Request) asks() rbacv1.PolicyRule {
	resource := r.Resource.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	rule := rbacv1.PolicyRule{Verbs: []string{r.Verb}, APIGroups: []string{r.Resource.Group},
		Resources: []string{resource}}
	if r.Name != "" {
		rule.ResourceNames = []string{r.Name}
	}
	return rule
}

// authorize refuses what the user of the link may not do, and remembers what he did. A list and a watch of one object
// by its name are authorized as requests for that object are.
func (l *Link) authorize(r Request, name string) error {
	if r.Path != "" {
		return nil // everybody may discover what there is
	}
	if r.Name == "" {
		r.Name = name
	}
	asked := r.asks()
	right, may := use{r.Namespace, r.Resource.Group, asked.Resources[0], r.Verb}, l.may(r)
	l.server.store.mu.Lock()
	if may {
		l.used[right] = true
	} else {
		l.lacked[right] = true
	}
	l.server.store.mu.Unlock()
	if may {
		return nil
	}
	where := "at the cluster scope"
	if r.Namespace != "" {
		where = fmt.Sprintf("in the namespace %q", r.Namespace)
	}
	return apierrors.NewForbidden(r.Resource.GroupResource(), r.Name,
		//lint:ignore ST1005 it is the real server's text
		fmt.Errorf("User %q cannot %s resource %q in API group %q %s", l.user, r.Verb, asked.Resources[0],
			r.Resource.Group, where))
}

// may reports whether the user of the link has the right to a request. What he may do can be refused all the same: by
// admission, with the same code.
func (l *Link) may(r Request) bool {
	a := l.server.access
	return a == nil || l.user == "" || a.allows(l.user, groupsOf(l.user), r.Namespace, r.asks())
}

// use is a right that was made use of, or was needed.
type use struct{ namespace, group, resource, verb string }

// lacks returns the rights that the user has needed since the last call, and has not. Admission refuses with the code
// that a missing right has; and one request may need several rights, as an apply that creates does.
func (l *Link) lacks() []use {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	defer clear(l.lacked)
	return slices.Collect(maps.Keys(l.lacked))
}

// rights returns the rights that were made use of over the link.
func (l *Link) rights() []use {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	return slices.Collect(maps.Keys(l.used))
}

// Used returns the smallest rules that allow the requests that were made over the link and not refused. Its keys are
// namespaces; the empty one has the rules for requests about all namespaces and about cluster-scoped resources. There
// is one rule for each resource, in order. The rules do not name objects.
func (l *Link) Used() map[string][]rbacv1.PolicyRule {
	l.server.store.mu.Lock()
	defer l.server.store.mu.Unlock()
	verbs := make(map[use][]string)
	for u := range l.used {
		of := use{namespace: u.namespace, group: u.group, resource: u.resource}
		verbs[of] = append(verbs[of], u.verb)
	}
	all := make(map[string][]rbacv1.PolicyRule)
	for _, u := range slices.SortedFunc(maps.Keys(verbs), func(a, b use) int {
		return strings.Compare(a.group+"\x00"+a.resource, b.group+"\x00"+b.resource)
	}) {
		slices.Sort(verbs[u])
		all[u.namespace] = append(all[u.namespace],
			rbacv1.PolicyRule{APIGroups: []string{u.group}, Resources: []string{u.resource}, Verbs: verbs[u]})
	}
	return all
}

// nameSelected returns the name that a field selector asks for, if it asks for one.
func nameSelected(selector string) string {
	f, err := fields.ParseSelector(selector)
	if err != nil {
		return ""
	}
	name, _ := f.RequiresExactMatch("metadata.name")
	return name
}

// selfReviews and accessReviews are of the questions which rights the user of a link has, and which any user has.
var (
	selfReviews   = authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
	accessReviews = authorizationv1.SchemeGroupVersion.WithResource("subjectaccessreviews")
)

// discoveredReviews is what the discovery documents say of them: a client that maps kinds to resources asks there.
func discoveredReviews() []metav1.APIResource {
	return []metav1.APIResource{
		{Name: selfReviews.Resource, SingularName: "selfsubjectaccessreview", Kind: "SelfSubjectAccessReview",
			Verbs: metav1.Verbs{"create"}},
		{Name: accessReviews.Resource, SingularName: "subjectaccessreview", Kind: "SubjectAccessReview",
			Verbs: metav1.Verbs{"create"}},
	}
}

// reviewAccess answers such a question. Everybody may ask about himself, and nothing is stored.
func (s *Server) reviewAccess(l *Link, asks Request, req *http.Request) (*http.Response, error) {
	r := &Resource{GroupVersionResource: selfReviews, Kind: "SelfSubjectAccessReview",
		builtin: &rules{new: func() object { return &authorizationv1.SelfSubjectAccessReview{} }}}
	if asks.Resource == accessReviews {
		r = &Resource{GroupVersionResource: accessReviews, Kind: "SubjectAccessReview",
			builtin: &rules{new: func() object { return &authorizationv1.SubjectAccessReview{} }}}
		if err := l.authorize(asks, ""); err != nil {
			return nil, err
		}
	}
	format, err := s.accepted(req.Header.Get("Accept"), nil)
	if err != nil {
		return nil, err
	}
	body, media, err := s.readBody(req)
	if err != nil {
		return nil, err
	}
	o, _, err := s.read(r, media, body)
	if misfit, ok := errors.AsType[*misfitError](err); ok {
		return nil, r.cannotHandle(misfit.error)
	}
	if err != nil {
		return nil, err
	}
	var wrong field.ErrorList
	switch review := o.(type) {
	case *authorizationv1.SelfSubjectAccessReview:
		spec := &review.Spec
		wrong = attributesWrong(*spec, spec.ResourceAttributes, spec.NonResourceAttributes)
		review.Status.Allowed = l.user == "" || grants(s.access, l.user, groupsOf(l.user), spec.ResourceAttributes,
			spec.NonResourceAttributes)
	case *authorizationv1.SubjectAccessReview:
		spec := &review.Spec
		wrong = attributesWrong(*spec, spec.ResourceAttributes, spec.NonResourceAttributes)
		if spec.User == "" && len(spec.Groups) == 0 {
			wrong = append(wrong, field.Invalid(field.NewPath("spec", "user"), "",
				"at least one of user or group must be specified"))
		}
		review.Status.Allowed = grants(s.access, spec.User, spec.Groups, spec.ResourceAttributes,
			spec.NonResourceAttributes)
	}
	if len(wrong) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", wrong)
	}
	return answerObject(http.StatusCreated, format, o), nil
}

// attributesWrong says what is wrong with a question that is not about exactly one thing.
func attributesWrong(spec any, at *authorizationv1.ResourceAttributes,
	path *authorizationv1.NonResourceAttributes) field.ErrorList {
	switch {
	case at != nil && path != nil:
		return field.ErrorList{field.Invalid(field.NewPath("spec"), spec,
			"nonResourceAttributes cannot be specified in combination with resourceAttributes")}
	case at == nil && path == nil:
		return field.ErrorList{field.Invalid(field.NewPath("spec"), spec,
			"exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	}
	return nil
}

// publicPath matches what a real server shows to all who are authenticated, by roles that it makes itself.
var publicPath = regexp.MustCompile(`^/((healthz|livez|readyz)|version/?|(api|apis|openapi)(/.*)?)$`)

// grants reports whether a user, or one of some groups, may do something; a nil access grants all.
func grants(a *access, user string, groups []string, at *authorizationv1.ResourceAttributes,
	path *authorizationv1.NonResourceAttributes) bool {
	switch {
	case a == nil:
		return true
	case path != nil && slices.Contains(groups, "system:authenticated") && publicPath.MatchString(path.Path):
		return path.Verb == "get"
	case path != nil:
		return a.allows(user, groups, "", rbacv1.PolicyRule{Verbs: []string{path.Verb},
			NonResourceURLs: []string{path.Path}})
	case at == nil:
		return false
	}
	asked := Request{Verb: at.Verb, Namespace: at.Namespace, Name: at.Name, Subresource: at.Subresource}
	asked.Resource = schema.GroupVersionResource{Group: at.Group, Resource: at.Resource}
	return a.allows(user, groups, at.Namespace, asked.asks())
}
