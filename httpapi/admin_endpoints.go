package httpapi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"sluice/internal/view"
	"sluice/webhook"
)

// defaultSecretOverlap is a working day in which the people of a receiver can change to its new secret.
const defaultSecretOverlap = 24 * time.Hour

func (a *admin) routeEndpoints(e *echo.Echo) {
	const one = adminRoot + "endpoints/:id"
	read := []string{http.MethodGet, http.MethodHead}
	e.Match(read, adminRoot+"endpoints", brief(a.listEndpoints))
	e.POST(adminRoot+"endpoints", brief(a.onceAs(a.addEndpoint, verdictOfSecret)))
	e.Match(read, one, brief(a.showEndpoint))
	e.DELETE(one, brief(a.once(a.removeEndpoint)))
	a.command(e, "endpoints/:id/enable", a.enableEndpoint)
	a.command(e, "endpoints/:id/disable", a.disableEndpoint)
	e.POST(one+"/rotate", brief(a.onceAs(a.rotateSecret, verdictOfSecret)))
	e.POST(one+"/test", a.testEndpoint) // takes as long as a delivery may
}

func (a *admin) listEndpoints(c echo.Context) error {
	list, err := a.Endpoints.Endpoints(c.Request().Context())
	if err != nil {
		return err
	}
	return sendJSON(c, http.StatusOK, struct {
		Endpoints []view.Endpoint `json:"endpoints"`
	}{view.NewEndpoints(list)})
}

func (a *admin) addEndpoint(c echo.Context) error {
	var url string
	var types []string
	who, given, err := readCommand(c, map[string]any{"url": &url, "types": &types})
	if err != nil {
		return err
	}
	if !given["url"] {
		return fieldError{"url", "it is required"}
	}
	e, err := a.Endpoints.Add(c.Request().Context(), who, url, types)
	if err != nil {
		return notFound(err, codeUnknownEndpoint) // one that an earlier try registered, and that was removed since
	}
	c.Response().Header().Set("Location", adminRoot+"endpoints/"+strconv.FormatInt(e.ID, 10))
	return sendJSON(c, http.StatusCreated, view.NewEndpointWithSecret(&e))
}

func (a *admin) showEndpoint(c echo.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	e, err := a.Endpoints.Endpoint(c.Request().Context(), id)
	return sendEndpoint(c, &e, err)
}

func (a *admin) enableEndpoint(c echo.Context) error {
	var skip bool
	e, err := commandOn(c, endpointID, map[string]any{"skip_next": &skip},
		func(ctx context.Context, who string, id int64) (webhook.Endpoint, error) {
			return a.Endpoints.EnableEndpoint(ctx, who, id, skip)
		})
	return sendEndpoint(c, &e, err)
}

func (a *admin) disableEndpoint(c echo.Context) error {
	e, err := commandOn(c, endpointID, nil, a.Endpoints.DisableEndpoint)
	return sendEndpoint(c, &e, err)
}

func (a *admin) removeEndpoint(c echo.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	if err := a.Endpoints.RemoveEndpoint(c.Request().Context(), actor(c), id); err != nil {
		return notFound(err, codeUnknownEndpoint)
	}
	return c.NoContent(http.StatusNoContent)
}

// rotateSecret answers with the new secret.
func (a *admin) rotateSecret(c echo.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	keep := int64(defaultSecretOverlap / time.Second)
	who, _, err := readCommand(c, map[string]any{"keep_seconds": &keep})
	if err != nil {
		return err
	}
	if keep < 0 || keep > int64(webhook.MaxSecretOverlap/time.Second) {
		return fieldError{"keep_seconds", fmt.Sprintf("use 0 to %d", webhook.MaxSecretOverlap/time.Second)}
	}
	e, err := a.Endpoints.Rotate(c.Request().Context(), who, id, time.Duration(keep)*time.Second)
	if err != nil {
		return notFound(err, codeUnknownEndpoint)
	}
	return sendJSON(c, http.StatusOK, view.NewEndpointWithSecret(&e))
}

// testEndpoint answers with the result of the delivery; a failed one is no error.
func (a *admin) testEndpoint(c echo.Context) error {
	id, err := endpointID(c)
	if err != nil {
		return err
	}
	if _, err := readFields(c, nil); err != nil {
		return err
	}
	result, err := a.Endpoints.Test(c.Request().Context(), id)
	if err != nil {
		return notFound(err, codeUnknownEndpoint)
	}
	return sendJSON(c, http.StatusOK, view.NewDelivery(&result))
}

func sendEndpoint(c echo.Context, e *webhook.Endpoint, err error) error {
	if err != nil {
		return notFound(err, codeUnknownEndpoint)
	}
	return sendJSON(c, http.StatusOK, view.NewEndpoint(e))
}

func endpointID(c echo.Context) (int64, error) { return idParam(c, codeUnknownEndpoint, "endpoint") }
