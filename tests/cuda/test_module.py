import pytest

from hsakit.cuda import module
from hsakit.ffi.errors import CodeObjectError, InvalidArgument


def test_arguments_are_where_the_driver_says_under_the_names_of_the_source(tmp_path):
    found = module.describe(tmp_path, "k", [["to", True], ["count", False]], [(0, 8), (8, 4)])
    assert [(each.name, each.offset, each.size, each.pointer) for each in found] == [
        ("to", 0, 8, True),
        ("count", 8, 4, False),
    ]


@pytest.mark.parametrize("found", [[(0, 8)], [(0, 8), (8, 4), (12, 4)], [(0, 4), (8, 4)]])
def test_source_and_driver_must_agree(tmp_path, found):
    with pytest.raises(CodeObjectError, match="has arguments .'to', 'count'. by its source"):
        module.describe(tmp_path, "k", [["to", True], ["count", False]], found)


def test_a_kernel_copies_and_its_arguments_are_checked(cuda_node):
    gpu = cuda_node.gpus[0]
    with gpu.create_queue(8) as queue, gpu.allocate(5000) as src, gpu.allocate(5000) as dst:
        gpu.put(src, lambda view: view.__setitem__(slice(None), 7))
        gpu.put(dst, lambda view: view.__setitem__(slice(None), 1))
        launch = gpu.kernels.copy(dst, src)
        work = queue.prepare(launch)
        launch.set("nbytes", 3)  # for launches to come
        work.submit()
        queue.drain()
        assert (gpu.get(dst) == 7).all()
        kernel = gpu.kernels.kernel("copy", "copy")
        with pytest.raises(InvalidArgument, match="takes 3 arguments, not 2: dst: a pointer, src: a pointer, nbytes"):
            kernel.prepare(1, 256, [dst, src])
        with pytest.raises(InvalidArgument, match="takes workgroups of at most 256"):
            kernel.prepare(1, 512, [dst, src, 1])
        with pytest.raises(CodeObjectError, match="no kernel 'paste'; it has copy"):
            gpu.kernels.kernel("copy", "paste")


def test_a_cubin_without_names_is_refused(cuda_node, tmp_path):
    path = tmp_path / "k.cubin"
    path.write_bytes(b"")
    with pytest.raises(InvalidArgument, match="no names of arguments beside it"):
        cuda_node.gpus[0].load(path)
