import pytest

from hsakit.ffi import HIP, HSA, errors, hip


def test_hsa_error_has_call_name_number_text_and_advice():
    with pytest.raises(errors.HsaError) as caught:
        errors.check_hsa("hsa_amd_memory_async_copy_on_engine", 0x1001, "Give exactly one engine bit.")
    error = caught.value
    assert (error.call, error.code, error.name) == (
        "hsa_amd_memory_async_copy_on_engine",
        0x1001,
        "HSA_STATUS_ERROR_INVALID_ARGUMENT",
    )
    assert error.text.startswith("One of the actual arguments does not meet a precondition")  # the library's own words
    assert error.advice == "Give exactly one engine bit."
    message = str(error)
    assert message.startswith(
        "hsa_amd_memory_async_copy_on_engine: HSA_STATUS_ERROR_INVALID_ARGUMENT (0x1001): One of the actual arguments"
    )
    assert message.endswith("formal argument. Give exactly one engine bit.")


def test_status_of_the_amd_extension_is_named():
    with pytest.raises(errors.HsaError, match=r"^hsa_init: HSA_STATUS_ERROR_MEMORY_FAULT \(0x2b\): Agent attempted"):
        errors.check_hsa("hsa_init", HSA.HSA_STATUS_ERROR_MEMORY_FAULT)


def test_status_nobody_knows_is_still_an_error_with_its_number():
    with pytest.raises(errors.HsaError) as caught:
        errors.check_hsa("hsa_init", 0x4711, "Report it.")
    assert str(caught.value) == "hsa_init: unknown status (0x4711): Report it."


@pytest.mark.parametrize("name", ["HSA_STATUS_SUCCESS", "HSA_STATUS_INFO_BREAK", "HSA_STATUS_CU_MASK_REDUCED"])
def test_reports_are_not_errors(name):
    errors.check_hsa("hsa_amd_queue_cu_set_mask", getattr(HSA, name))


def test_queue_error_is_made_for_a_later_raise():
    error = errors.queue_error("queue 3 of agent 1", HSA.HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION)
    assert isinstance(error, errors.HsakitError)
    assert error.name == "HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION"
    assert str(error).startswith("queue 3 of agent 1: HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION (0x2a): ")


def test_hip_error_is_named_by_the_library():
    errors.check_hip("hipInit", HIP.hipSuccess)
    with pytest.raises(errors.HipError) as caught:
        errors.check_hip("hipGetDeviceCount", HIP.hipErrorNoDevice, "Is /dev/kfd there?")
    words = hip().ffi.string(hip().lib.hipGetErrorString(100)).decode()
    assert (caught.value.name, caught.value.text) == ("hipErrorNoDevice", words)
    assert str(caught.value) == f"hipGetDeviceCount: hipErrorNoDevice (100): {words}. Is /dev/kfd there?"


def test_an_answer_of_hip_is_no_error():
    assert errors.hip_answered("hipEventQuery", HIP.hipErrorNotReady, HIP.hipErrorNotReady)
    assert not errors.hip_answered("hipEventQuery", HIP.hipSuccess, HIP.hipErrorNotReady)
    with pytest.raises(errors.HipError, match="^hipEventQuery: hipErrorInvalidDevice .101.: .* It was event 7.$"):
        errors.hip_answered("hipEventQuery", HIP.hipErrorInvalidDevice, HIP.hipErrorNotReady, "It was event 7")


def test_refusals_are_the_builtin_errors_too():
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.DeadlineExceeded, TimeoutError)
